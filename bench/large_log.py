"""Row: ``last_record`` of a 1 GB log, in a fresh process."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from agent_checkpoint import Checkpointer
from bench.fresh import answer
from bench.row import AT_MOST, UNDER, Demand, Fact, Figure, Measured, Row, Setting
from bench.states import state, states
from bench.stats import median, megabytes, millis

RECORD_SIZES = {"64 KB records": 65_536, "4 KB records": 4_096}
LARGE_RECORD_BYTES = 3_000_000
ROOM_BYTES = 200_000_000
"""What must stay free on the disk beside the log."""

TIME = Demand("last_record of a 1 GB log: time", UNDER, 50, "ms")
MEMORY = Demand("last_record of a 1 GB log: memory more than the import", UNDER, 30, "MB")
TAIL = Demand("last_record of a 1 GB log: bytes read of it", AT_MOST, 1, "MB")

CHILD = Path(__file__).with_name("tail_process.py")


@dataclass(frozen=True)
class Read:
    """The medians of some fresh processes that each read one log."""

    took_ns: float
    memory_bytes: float
    read_bytes: float

    def __str__(self) -> str:
        return (
            f"{millis(self.took_ns)}, {megabytes(self.memory_bytes)} more memory,"
            f" {megabytes(self.read_bytes)} read"
        )


class Reader:
    """Starts the processes that read, and subtracts what only importing costs."""

    def __init__(self, setting: Setting, warm_up_log: Path) -> None:
        self._source = str(setting.source)
        self._warm_up_log = str(warm_up_log)
        self.times = 3 if setting.quick else 11

    def _imported_bytes(self) -> int:
        return int(answer(CHILD, self._source, "import")["peak_bytes"])

    def last_record(self, log: Path, turn: int, *, cached: bool = True) -> Read:
        """Measure ``last_record`` of *log*, whose newest record is that of *turn*."""
        took: list[float] = []
        memory: list[float] = []
        read: list[float] = []
        for _ in range(self.times):
            imported = self._imported_bytes()
            if not cached:
                _drop_from_cache(log)
            found = answer(CHILD, self._source, "last", str(log), str(turn))
            took.append(found["took_ns"])
            memory.append(found["peak_bytes"] - imported)
            warmed = (str(log), str(turn), self._warm_up_log)
            read.append(answer(CHILD, self._source, "last", *warmed)["read_bytes"])
        return Read(median(took), median(memory), median(read))

    def verify(self, log: Path) -> Read:
        """Measure ``verify`` of *log*, once."""
        imported = self._imported_bytes()
        found = answer(CHILD, self._source, "verify", str(log), "0")
        return Read(found["took_ns"], found["peak_bytes"] - imported, found["read_bytes"])


def _drop_from_cache(log: Path) -> None:
    fd = os.open(log, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _build(log: Path, record_bytes: int, log_bytes: int) -> int:
    """Write a log of *log_bytes* and return the newest turn."""
    pool = states(64 if record_bytes > 10_000 else 512, record_bytes)
    turn = written = 0
    with Checkpointer(log, label="bench", run_id="run-001", durability="flush") as checkpointer:
        while written < log_bytes:
            for one in pool:
                turn = checkpointer.save(one).turn
            written = log.stat().st_size
    # The disk is not to be busy with the building while the reading is measured.
    fd = os.open(log, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return turn


def _measure_variant(
    setting: Setting, name: str, record_bytes: int, log_bytes: int
) -> tuple[Read, list[Fact]]:
    small, log = setting.folder / "small.jsonl", setting.folder / "large.jsonl"
    with Checkpointer(small) as checkpointer:
        checkpointer.save({"warm": "up"})
    setting.say(f"building a log of {log_bytes / 1e9:.2f} GB, {name}")
    turn = _build(log, record_bytes, log_bytes)
    facts: list[Fact] = []
    try:
        reader = Reader(setting, small)
        setting.say(f"reading it, {reader.times} times")
        plain = reader.last_record(log, turn)
        facts.append(Fact(f"{name}: last_record, file in the page cache", str(plain)))
        if hasattr(os, "posix_fadvise"):
            dropped = reader.last_record(log, turn, cached=False)
            facts.append(Fact(f"{name}: file dropped from the page cache first", str(dropped)))
        setting.say("verifying it")
        checked = reader.verify(log)
        speed = log.stat().st_size / 1e6 / (checked.took_ns / 1e9)
        memory = megabytes(checked.memory_bytes)
        facts.append(Fact(f"{name}: verify()", f"{speed:,.0f} MB/s, {memory} more memory"))
        setting.say("the same with bad tails and with a large last record")
        whole_bytes = log.stat().st_size
        os.truncate(log, whole_bytes + 8_192)
        found = reader.last_record(log, turn)
        facts.append(Fact(f"{name}: torn tail of 8,192 NUL bytes", str(found)))
        os.truncate(log, whole_bytes - record_bytes // 2)
        found = reader.last_record(log, turn - 1)
        facts.append(Fact(f"{name}: torn tail of half a record", str(found)))
        # A whole log again: the repair has tests of its own.
        os.truncate(log, _end_of_last_whole_line(log))
        with Checkpointer(log, durability="flush") as checkpointer:
            turn = checkpointer.save(state(1, LARGE_RECORD_BYTES)).turn
        found = reader.last_record(log, turn)
        facts.append(Fact(f"{name}: last record of 3 MB", str(found)))
    finally:
        log.unlink()
        small.unlink()
    return plain, facts


def _end_of_last_whole_line(log: Path) -> int:
    size = log.stat().st_size
    with open(log, "rb") as file:
        begin = max(0, size - 1_000_000)
        file.seek(begin)
        return begin + file.read().rindex(b"\n") + 1


def _measure(setting: Setting) -> Measured:
    log_bytes = 64 * 2**20 if setting.quick else 2**30
    free_bytes = shutil.disk_usage(setting.folder).free
    if free_bytes < log_bytes + ROOM_BYTES:
        words = f"{megabytes(free_bytes)} free, {megabytes(log_bytes + ROOM_BYTES)} needed"
        return Measured(
            figures=tuple(Figure(demand, None, words) for demand in (TIME, MEMORY, TAIL)),
        )
    reads: list[Read] = []
    facts: list[Fact] = []
    for name, record_bytes in RECORD_SIZES.items():
        plain, more = _measure_variant(setting, name, record_bytes, log_bytes)
        reads.append(plain)
        facts.extend(more)
    note = f"the worse of {' and '.join(RECORD_SIZES)}"
    if setting.quick:
        note += f"; a log of {megabytes(log_bytes)} only"
    return Measured(
        figures=(
            Figure(TIME, max(read.took_ns for read in reads) / 1e6, note),
            Figure(MEMORY, max(read.memory_bytes for read in reads) / 1e6, note),
            Figure(TAIL, max(read.read_bytes for read in reads) / 1e6, note),
        ),
        facts=tuple(facts),
    )


ROW = Row(
    name="large-log",
    title="last_record of a 1 GB log",
    method=(
        "A log of 2^30 bytes, once of 64 KB and once of 4 KB records. Each read is a fresh process:"
        " time from after the import until `Checkpointer(path).last_record.data` is there; the"
        " process's peak memory above that of one that only imports; bytes from its read calls"
        " (`rchar`). Medians of the processes. The record's turn is checked."
    ),
    demands=(TIME, MEMORY, TAIL),
    measure=_measure,
)
