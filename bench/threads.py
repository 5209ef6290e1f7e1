"""Row: many threads that save to one log, against one thread."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from time import perf_counter_ns
from typing import Callable

from agent_checkpoint import Checkpointer
from bench.group_commit import GroupCommit
from bench.row import AT_LEAST, Demand, Fact, Figure, Measured, Row, Setting
from bench.states import State, states
from bench.stats import median, spread

LINE_BYTES = 4_096
MANY = 32
SOME = 8
SMALL_BYTES = 1_024
DEMAND = Demand(f"records per second of {MANY} threads over one thread", AT_LEAST, 5, "times")

Save = Callable[[State], object]


def _rate(save: Save, pool: list[State], count: int, seconds: float) -> float:
    """Count the returned saves per second of *count* threads that all call *save* for *seconds*."""
    returned = [0] * count
    ended_ns = [0] * count
    errors: list[BaseException] = []
    start = threading.Barrier(count + 1)
    deadline_ns = 0

    def work(number: int) -> None:
        turn = number * 7
        done = 0
        start.wait()
        try:
            while perf_counter_ns() < deadline_ns:
                save(pool[turn % len(pool)])
                turn += 1
                done += 1
        except BaseException as error:
            errors.append(error)
        returned[number] = done
        ended_ns[number] = perf_counter_ns()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    begun_ns = perf_counter_ns()
    deadline_ns = begun_ns + int(seconds * 1e9)
    start.wait()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return sum(returned) / ((max(ended_ns) - begun_ns) / 1e9)


def _json_line(state: State) -> bytes:
    """*state* as the log writes it: characters beyond ASCII stand as themselves."""
    return json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _library_rate(folder: Path, pool: list[State], count: int, seconds: float) -> float:
    path = folder / "run.jsonl"
    with Checkpointer(path, label="bench", run_id="run-001") as log:
        for state in pool[:50]:
            log.save(state)
        rate = _rate(log.save, pool, count, seconds)
    path.unlink()
    return rate


def _floor_rate(
    folder: Path, pool: list[State], count: int, seconds: float, *, encode: bool
) -> float:
    """Measure a group commit of a few lines, given the bytes or encoding them itself."""
    path = folder / "floor.jsonl"
    lines = {id(state): _json_line(state) for state in pool}
    with closing(GroupCommit(path)) as log:

        def save_given(state: State) -> None:
            log.append(lines[id(state)])

        def save_encoded(state: State) -> None:
            log.append(_json_line(state))

        save: Save = save_encoded if encode else save_given
        for state in pool[:50]:
            save(state)
        rate = _rate(save, pool, count, seconds)
    path.unlink()
    return rate


def _measure(setting: Setting) -> Measured:
    seconds, rounds = (0.4, 2) if setting.quick else (2.0, 7)
    pool = states(512, LINE_BYTES)
    one: list[float] = []
    many: list[float] = []
    some: list[float] = []
    small_pool = states(512, SMALL_BYTES)
    small: dict[int, list[float]] = {1: [], MANY: []}
    floors: dict[tuple[int, bool], list[float]] = {}
    for number in range(rounds):
        setting.say(f"round {number + 1} of {rounds}")
        one.append(_library_rate(setting.folder, pool, 1, seconds))
        many.append(_library_rate(setting.folder, pool, MANY, seconds))
        some.append(_library_rate(setting.folder, pool, SOME, seconds))
        for count, rates in small.items():
            rates.append(_library_rate(setting.folder, small_pool, count, seconds / 2))
        for encode in (False, True):
            for count in (1, MANY):
                rate = _floor_rate(setting.folder, pool, count, seconds / 2, encode=encode)
                floors.setdefault((count, encode), []).append(rate)
    ratios = [above / below for above, below in zip(many, one)]
    return Measured(
        figures=(Figure(DEMAND, median(ratios), f"rounds {spread(ratios)}"),),
        facts=(
            Fact("1 thread", _per_second(one)),
            Fact(f"{SOME} threads", f"{_per_second(some)}, {median(some) / median(one):.2f} times"),
            Fact(f"{MANY} threads", _per_second(many)),
            Fact(
                f"records of {SMALL_BYTES // 1024} KB, 1 / {MANY} threads",
                _one_and_many(small[1], small[MANY]),
            ),
            _floor_fact("minimal group commit of given bytes", floors, encode=False),
            _floor_fact("minimal group commit with json.dumps in the threads", floors, encode=True),
            Fact("rounds", f"{rounds}, {seconds:g} s for each number of threads"),
        ),
    )


def _floor_fact(what: str, floors: dict[tuple[int, bool], list[float]], *, encode: bool) -> Fact:
    rates = _one_and_many(floors[1, encode], floors[MANY, encode])
    return Fact(f"{what}, 1 / {MANY} threads", rates)


def _one_and_many(one: list[float], many: list[float]) -> str:
    times = median(many) / median(one)
    return f"{median(one):,.0f} / {median(many):,.0f} records/s, {times:.2f} times"


def _per_second(rates: list[float]) -> str:
    return f"{median(rates):,.0f} records/s (rounds {min(rates):,.0f} to {max(rates):,.0f})"


ROW = Row(
    name="threads",
    title=f"{MANY} threads that save 4 KB records to one log",
    method=(
        "1, 32 and 8 threads in turn, each on a new log, for a fixed time, all calling `save()` on"
        " one Checkpointer with the default durability. Only saves that returned are counted. The"
        " figure is the median over the rounds of rate divided by rate."
    ),
    demands=(DEMAND,),
    measure=_measure,
)
