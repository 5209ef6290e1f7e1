"""Row: a durable save, against ``os.write`` and ``os.fdatasync`` of the same bytes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from agent_checkpoint import Checkpointer
from bench.bare import BareLog, LineReader
from bench.row import AT_MOST, Demand, Fact, Figure, Measured, Row, Setting
from bench.states import State, states
from bench.stats import median, micros, p50_p99, spread
from bench.timed import dumps_ns, durable_write_ns, save_ns

LINE_BYTES = 4_096
DEMAND = Demand("save of a 4 KB record over bare write + fdatasync, p50", AT_MOST, 1.3, "times")


class Round:
    """The times of one round, in nanoseconds."""

    def __init__(self) -> None:
        self.save: list[int] = []
        self.bare: list[int] = []
        self.encoded: list[int] = []
        self.line_bytes: list[int] = []

    @property
    def ratio(self) -> float:
        """What a save takes over what a bare write takes."""
        return median(self.save) / median(self.bare)

    @property
    def encoded_ratio(self) -> float:
        """What a bare write with json.dumps before it takes over what a bare write takes."""
        return median(self.encoded) / median(self.bare)


def _alternate(
    log: Checkpointer,
    lines: LineReader,
    bare: BareLog,
    pool: list[State],
    warm_up: int,
    *,
    parsed: bool,
) -> Round:
    """Save and write in turn; a bare write always gets the newest line of the log.

    With *parsed*, the program is at work before each of them: it parses the state from JSON. A
    processor that has slept through a sync is slower at whatever comes next.
    """
    taken = Round()
    log.save(pool[0])
    line = lines.newest()
    for number, kept in enumerate(pool):
        state = kept
        save = write = encoded = 0
        text = json.dumps(state) if parsed else ""
        for place in range(3):
            if parsed:
                state = json.loads(text)
            which = (place + number) % 3
            if which == 0:
                save = save_ns(log, state)
                line = lines.newest()
            elif which == 1:
                write = durable_write_ns(bare.fd, line)
            else:
                encoded = dumps_ns(state) + durable_write_ns(bare.fd, line)
        if number >= warm_up:
            taken.save.append(save)
            taken.bare.append(write)
            taken.encoded.append(encoded)
            taken.line_bytes.append(len(line))
    return taken


def _measure_round(folder: Path, pool: list[State], warm_up: int, *, parsed: bool) -> Round:
    folder.mkdir()
    path = folder / "run.jsonl"
    with Checkpointer(path, label="bench", run_id="run-001") as log:
        log.save(pool[0])
        with closing(LineReader(path)) as lines, closing(BareLog(folder / "bare.jsonl")) as bare:
            return _alternate(log, lines, bare, pool, warm_up, parsed=parsed)


def _measure(setting: Setting) -> Measured:
    pairs, rounds, warm_up = (200, 2, 20) if setting.quick else (2_000, 5, 100)
    taken: list[Round] = []
    awake: list[Round] = []
    for number in range(rounds):
        setting.say(f"round {number + 1} of {rounds}")
        pool = states(pairs + warm_up, LINE_BYTES, seed=1 + number * 100_000)
        folder = setting.folder / f"round-{number}"
        taken.append(_measure_round(folder, pool, warm_up, parsed=False))
        folder = setting.folder / f"parsed-{number}"
        awake.append(_measure_round(folder, pool, warm_up, parsed=True))
    ratios = [one.ratio for one in taken]
    save = [time for one in taken for time in one.save]
    bare = [time for one in taken for time in one.bare]
    apart = [ours - theirs for ours, theirs in zip(save, bare)]
    encoded = [time for one in taken for time in one.encoded]
    encoded_ratio = median([one.encoded_ratio for one in taken])
    line_bytes = median([size for one in taken for size in one.line_bytes])
    return Measured(
        figures=(Figure(DEMAND, median(ratios), f"rounds {spread(ratios)}"),),
        facts=(
            Fact("durable save, p50 / p99", p50_p99(save)),
            Fact("bare write + fdatasync, p50 / p99", p50_p99(bare)),
            Fact(
                "the same with json.dumps of the data before it, p50 / p99",
                f"{p50_p99(encoded)}, {encoded_ratio:.2f} times the bare write",
            ),
            Fact(
                "save over bare write where the state was parsed just before, p50",
                f"{median([one.ratio for one in awake]):.2f} times"
                f" (rounds {spread([one.ratio for one in awake])});"
                f" with json.dumps before it {median([one.encoded_ratio for one in awake]):.2f}",
            ),
            Fact("save minus the bare write of the same turn, p50", micros(median(apart))),
            Fact("length of the line, p50", f"{line_bytes:.0f} bytes"),
            Fact("turns measured", f"{len(save):,} in {rounds} rounds"),
        ),
    )


ROW = Row(
    name="durable-save",
    title="Durable save of a 4 KB record",
    method=(
        "One `save()` and one bare `os.write` + `os.fdatasync` of the log's newest line to another"
        " append-only file beside it, in turn, each in every place equally often. The figure is the"
        " median over the rounds of p50 divided by p50. The bare write with `json.dumps` before it"
        " is a third one in the same turn: what any library that writes JSON pays."
    ),
    demands=(DEMAND,),
    measure=_measure,
)
