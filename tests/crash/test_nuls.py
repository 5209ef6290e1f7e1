"""NULs: sectors that never reached the disk, at the end of a log and in the middle of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from agent_checkpoint import (
    Checkpointer,
    CheckpointError,
    CorruptLogError,
    NotALogError,
    TornTailWarning,
)
from tests.logs import (
    FULL,
    NEW,
    Log,
    build,
    check_recovery,
    folder_in_memory,
    put,
    seal,
    seen,
    steps,
)

SECTOR = 512
MOST = 8192

SHORT_LINES = build([{"n": n, "text": "é" * (270 * n)} for n in range(6)])
LONG_LAST_LINE = build([1, {"text": "x" * 100}, {"text": "é" * 2000 + "y" * 4500}])
# The last record begins in the middle of a sector and ends in the middle of another one.
SECTORS = build([{"text": "x" * 700}, {"text": "last " * 700}])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with folder_in_memory(tmp_path) as folder:
        yield folder


def check_torn(path: Path, log: Log, content: bytes, case: str, *, whole: int) -> None:
    """Check that *content*, whose first *whole* bytes are those of *log*, is read as torn there."""
    number, end = log.whole_in(whole)
    check_recovery(path, content, log.records[:number], end, case)


def check_last_bytes(path: Path, log: Log, numbers: list[int]) -> None:
    content = log.content
    assert len(content) > MOST == numbers[-1]

    for number in numbers:
        whole = len(content) - number
        hurt = content[:whole] + bytes(number)
        check_torn(path, log, hurt, f"last {number} bytes NUL", whole=whole)


def test_nuls_in_the_place_of_the_last_bytes_are_a_torn_tail(folder):
    numbers = steps(MOST, quick=61, keep=range(1, 200))[1:]

    check_last_bytes(folder / "run.jsonl", SHORT_LINES, numbers)


def test_nuls_in_the_place_of_the_last_bytes_of_a_long_record_are_a_torn_tail(folder):
    numbers = [*range(1, 300), *range(300, MOST, 13 if FULL else 97), MOST]

    check_last_bytes(folder / "run.jsonl", LONG_LAST_LINE, numbers)


def test_nuls_behind_the_last_record_are_a_torn_tail(folder):
    log = build([1, {"text": "é" * 100}])
    content = log.content

    for number in [*range(1, 1100 if FULL else 50), *range(1100, MOST, 13 if FULL else 97), MOST]:
        hurt = content + bytes(number)
        check_torn(folder / "run.jsonl", log, hurt, f"{number} NULs", whole=len(content))


@pytest.mark.parametrize("aligned_to", ["the file", "the record"])
def test_nuls_in_any_sectors_of_the_last_record_are_a_torn_tail(folder, aligned_to):
    content, start = SECTORS.content, SECTORS.starts[-1]
    origin = start % SECTOR if aligned_to == "the record" else 0
    borders = [n for n in range(origin, len(content) + SECTOR, SECTOR) if n + SECTOR > start]
    # What the sector holds of the record before was synced, and is on the disk.
    spans = [(max(n, start), min(n + SECTOR, len(content))) for n in borders]
    spans = [(first, end) for first, end in spans if first < end]
    assert len(spans) >= 7
    subsets = [mask for mask in product([False, True], repeat=len(spans)) if any(mask)]

    for mask in subsets if FULL else subsets[::9]:
        hurt = bytearray(content)
        for (first, end), is_lost in zip(spans, mask):
            if is_lost:
                hurt[first:end] = bytes(end - first)
        check_torn(folder / "run.jsonl", SECTORS, bytes(hurt), f"sectors {mask}", whole=start)


def test_a_lost_sector_of_the_first_record_is_a_torn_tail(folder):
    first = build([{"text": "only " * 700}])

    for start in range(0, len(first.content), SECTOR):
        end = min(start + SECTOR, len(first.content))
        hurt = first.content[:start] + bytes(end - start) + first.content[end:]
        check_torn(folder / "run.jsonl", first, hurt, f"sector at {start}", whole=0)


@pytest.mark.parametrize("cut", [0, 100])
def test_a_first_record_without_its_beginning_and_its_end_is_refused_and_left_alone(folder, cut):
    # Nothing but the end of its sum tells it from a stranger's file that begins with NULs.
    path, first = folder / "run.jsonl", build([{"text": "only " * 700}])
    end = len(first.content) - cut
    hurt = bytes(SECTOR) + first.content[SECTOR : end - 50] + bytes(50)
    put(path, hurt)

    with pytest.raises(NotALogError):
        Checkpointer(path).save(NEW)

    assert path.read_bytes() == hurt


def test_a_torn_first_record_of_nuls_and_text_is_no_foreign_file(folder):
    first = build([{"text": "only " * 700}])

    for end in range(SECTOR, len(first.content), SECTOR):
        hurt = bytes(end) + first.content[end:]
        check_torn(folder / "run.jsonl", first, hurt, f"first {end} bytes", whole=0)


@pytest.mark.parametrize("size", [1, 2, 511, 512, 513, 4096, 65_535, 65_536, 65_537, 1_100_000])
def test_a_file_of_nothing_but_nuls_is_a_torn_first_record(folder, size):
    check_torn(folder / "run.jsonl", SHORT_LINES, bytes(size), f"{size} NULs", whole=0)


def test_a_record_longer_than_the_tail_that_is_read_may_be_torn_in_the_middle(folder):
    log = build([1, {"text": "x" * 300_000}])
    start = log.starts[-1]

    for first in (start, start + 3_000, start + 65_536, len(log.content) - 66_000):
        hurt = bytearray(log.content)
        hurt[first : first + 4096] = bytes(4096)
        check_torn(folder / "run.jsonl", log, bytes(hurt), f"NULs at {first}", whole=start)


def test_nuls_longer_than_any_line_behind_the_last_record_are_a_torn_tail(tmp_path):
    path, log = tmp_path / "run.jsonl", build([1, 2])
    put(path, log.content)
    os.truncate(path, len(log.content) + 150_000_000)  # a hole: it takes no room on the disk

    with pytest.warns(TornTailWarning, match="150000000 bytes"):
        Checkpointer(path).save(NEW)

    assert path.stat().st_size < 1000
    assert seen(Checkpointer(path).records()) == [*log.records, (3, 3, NEW)]


def test_several_torn_records_of_one_shared_sync_are_all_dropped(folder):
    # Threads share one sync: what it did not reach may be many lines, whole NULs between them.
    log = build([{"n": n, "text": "x" * 400} for n in range(12)])
    start = log.starts[7]
    hurt = bytearray(log.content)
    for line in range(7, 12):
        hurt[log.starts[line] + 50 : log.starts[line] + 90] = bytes(40)

    check_torn(folder / "run.jsonl", log, bytes(hurt), "five torn lines", whole=start)


# -- damage -------------------------------------------------------------------------------


def check_damaged(path: Path, content: bytes, offset: int, seq: int, case: str) -> None:
    """Check that *content* is called damaged at *offset*, and that a save leaves it as it is."""
    put(path, content)

    ckpt = Checkpointer(path)
    with pytest.raises(CorruptLogError) as caught:
        list(ckpt.records())
    damage = ckpt.verify().damage
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ckpt.save(NEW)
    except CheckpointError:
        pass  # A hole far from the end is not met by a save.
    ckpt.close()

    assert (caught.value.offset, caught.value.seq) == (offset, seq), case
    assert damage is not None, case
    assert (damage.offset, damage.seq) == (offset, seq), case
    assert path.read_bytes().startswith(content), f"{case}: a save changed what was there"


@pytest.mark.parametrize("length", [1, 2, 40, 127, SECTOR, 1000])
def test_a_hole_with_a_record_behind_it_is_damage_where_it_begins(folder, length):
    log = build([{"n": n, "text": "@ é" * 20} for n in range(14)])
    content = log.content

    for first in range(0, log.starts[-1] - length + 1, 1 if FULL else 17):
        hurt = content[:first] + bytes(length) + content[first + length :]
        line = next(n for n, end in enumerate(log.ends) if first < end)
        # A record is whole without its newline, so a hole that begins there hurts the next one.
        only_newline = first == log.ends[line] - 1
        offset = first if only_newline else log.starts[line]
        seq = line + 1 + only_newline
        check_damaged(folder / "run.jsonl", hurt, offset, seq, f"hole at {first}")


def test_nuls_between_whole_records_are_damage(folder):
    log = build([1, 2, 3])
    before, after = b"".join(log.lines[:2]), log.lines[2]

    for number in (1, 300, SECTOR, 70_000):
        for end in (b"", b"\n"):
            hurt = before + bytes(number) + end + after
            check_damaged(folder / "run.jsonl", hurt, len(before), 3, f"{number} NULs, {end!r}")


# -- what a file system may show of an older file ------------------------------------------

OLD = build([{"old": n, "text": "stale " * 30} for n in range(20)])


@pytest.mark.parametrize("nuls", [0, 1, 700])
def test_a_stale_piece_of_a_line_behind_the_last_record_is_torn(folder, nuls):
    log = build([1, {"text": "é" * 100}])
    stale = OLD.lines[3]

    for first, end in ((1, 9), (1, len(stale) - 1), (0, 50), (60, 150), (len(stale) - 40, -1)):
        hurt = log.content + bytes(nuls) + stale[first:end]
        case = f"stale bytes {first} to {end}"
        check_torn(folder / "run.jsonl", log, hurt, case, whole=len(log.content))


@pytest.mark.parametrize("first", [0, 30, 200])
def test_whole_stale_lines_behind_the_last_record_are_never_taken_for_records(folder, first):
    log = build([1, {"text": "é" * 100}])
    stale = OLD.content[OLD.starts[2] + first : OLD.ends[6]]

    hurt = log.content + stale

    check_damaged(folder / "run.jsonl", hurt, len(log.content), 3, "stale lines")


def test_a_stale_line_with_the_next_number_is_never_taken_for_a_record(folder):
    log = build([1, 2])
    stale, _ = seal(OLD.lines[2][: OLD.lines[2].rindex(b',"sum"')], 3, b"0badcafe")

    check_damaged(folder / "run.jsonl", log.content + stale, len(log.content), 3, "stale line")


def test_a_torn_record_whose_state_holds_records_is_torn_wherever_its_nuls_end(folder):
    inner = [line[:-1] for line in build([1, 2, 3]).lines]
    text = b'{"turn":2,"ts":1.5,"data":["%s",%s,%s,%s],"meta":{}' % (b"x" * 600, *inner)
    first = build([1])
    last, _ = seal(text, 2, first.lines[0][-11:-3])
    # The mark of the first line is not its crc; the builder knows it.
    log = Log([first.lines[0], last], [(1, 1, 1)])
    start = log.starts[1]

    for end in (last.index(inner[0]), last.index(inner[1]), last.index(inner[2])):
        hurt = log.content[: start + 8] + bytes(end - 8) + last[end:]
        check_torn(folder / "run.jsonl", log, hurt, f"NULs up to {end}", whole=start)
