"""Row: a save with ``durability="flush"``, against ``json.dumps`` of the record alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from time import time

from agent_checkpoint import Checkpointer
from bench.bare import BareLog, LineReader
from bench.row import AT_MOST, Demand, Fact, Figure, Measured, Row, Setting
from bench.states import State, states
from bench.stats import median, micros, p50_p99, spread
from bench.timed import dumps_ns, save_ns, write_ns

LINE_BYTES = 4_096
DEMAND = Demand("flush save of a 4 KB record above json.dumps of it, p50", AT_MOST, 25, "µs")


class Round:
    """The times of one round, in nanoseconds."""

    def __init__(self) -> None:
        self.save: list[int] = []
        self.dumps: list[int] = []
        self.write: list[int] = []

    @property
    def above_us(self) -> float:
        """How many microseconds more a save takes than json.dumps."""
        return (median(self.save) - median(self.dumps)) / 1e3


def _alternate(
    log: Checkpointer, lines: LineReader, bare: BareLog, pool: list[State], warm_up: int
) -> Round:
    """Save, dump and write in turn, each going first, second and third equally often."""
    taken = Round()
    log.save(pool[0])
    line = lines.newest()
    meta = {"label": "bench", "run_id": "run-001"}
    for number, state in enumerate(pool):
        record: State = {"turn": number, "ts": time(), "data": state, "meta": meta}
        save = dumps = write = 0
        for place in range(3):
            which = (place + number) % 3
            if which == 0:
                save = save_ns(log, state)
                line = lines.newest()
            elif which == 1:
                dumps = dumps_ns(record)
            else:
                write = write_ns(bare.fd, line)
        if number >= warm_up:
            taken.save.append(save)
            taken.dumps.append(dumps)
            taken.write.append(write)
    return taken


def _measure_round(folder: Path, pool: list[State], warm_up: int) -> Round:
    folder.mkdir()
    path = folder / "run.jsonl"
    with Checkpointer(path, label="bench", run_id="run-001", durability="flush") as log:
        log.save(pool[0])
        with closing(LineReader(path)) as lines, closing(BareLog(folder / "bare.jsonl")) as bare:
            return _alternate(log, lines, bare, pool, warm_up)


def _measure(setting: Setting) -> Measured:
    count, rounds, warm_up = (600, 2, 60) if setting.quick else (4_000, 5, 300)
    taken: list[Round] = []
    for number in range(rounds):
        setting.say(f"round {number + 1} of {rounds}")
        pool = states(count + warm_up, LINE_BYTES, seed=1 + number * 100_000)
        taken.append(_measure_round(setting.folder / f"round-{number}", pool, warm_up))
    above = [one.above_us for one in taken]
    save = [spent for one in taken for spent in one.save]
    dumps = [spent for one in taken for spent in one.dumps]
    write = [spent for one in taken for spent in one.write]
    rest = median(save) - median(dumps) - median(write)
    return Measured(
        figures=(Figure(DEMAND, median(above), f"rounds {spread(above, 1)}"),),
        facts=(
            Fact("flush save, p50 / p99", p50_p99(save)),
            Fact("json.dumps of the record, p50 / p99", p50_p99(dumps)),
            Fact("bare os.write of the line, p50 / p99", p50_p99(write)),
            Fact("save minus json.dumps minus os.write, of the p50", micros(rest)),
            Fact("saves measured", f"{len(save):,} in {rounds} rounds"),
        ),
    )


ROW = Row(
    name="flush-save",
    title='Save of a 4 KB record with durability="flush"',
    method=(
        "One `save()`, one `json.dumps` of the same record with compact separators, and one bare"
        " `os.write` of the log's newest line, in turn, each in every place equally often. The"
        " figure is the median over the rounds of p50 minus p50."
    ),
    demands=(DEMAND,),
    measure=_measure,
)
