"""SIGKILL at any moment: what was acknowledged is there, whole and in order."""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from agent_checkpoint import Checkpointer
from tests.crash import shapes
from tests.crash.faults import Die, System, in_child, no_hang
from tests.crash.ledger import Ledger

KILLS = 500 if os.environ.get("CHECKPOINT_TESTS", "quick") == "full" else 100
KILLS_IN_TORTURE = 5000
LIVES = 10
"""So often is the process of one log killed, before the next log is begun."""

_ACK = struct.Struct("<QQ")  # the record's seq, and the number by which its state is known

pytestmark = pytest.mark.filterwarnings("ignore::agent_checkpoint.TornTailWarning")


@pytest.fixture(autouse=True)
def _no_hang(request) -> Iterator[None]:
    with no_hang(3600 if request.node.get_closest_marker("torture") else 600):
        yield


def state_of(number: int) -> dict[str, object]:
    """Return the state that has *number*: from a few bytes to a megabyte."""
    sizes = random.Random(number)
    large = sizes.randrange(256 * 1024, 1024 * 1024)
    size = sizes.choice((10, 3000, 70_000, large, large))
    return {"number": number, "text": chr(97 + number % 26) * size}


class Kills(NamedTuple):
    """What came of the kills, added up over several logs."""

    kills: int
    acknowledged: int
    torn: int
    lost: list[str]


class Life(NamedTuple):
    """A process that saves, and what it said of it before it was killed."""

    acknowledged: dict[int, int]
    number_after: int


def save_on(
    path: Path, durability: str, first: int, threads: int, say: Callable[[bytes], None]
) -> None:
    """Save for ever, saying the seq and the number of each state once it is acknowledged."""
    with Checkpointer(path, durability=durability) as run:
        say(_ACK.pack(0, 0))

        def work(numbers: Iterator[int]) -> None:
            for number in numbers:
                say(_ACK.pack(run.save(state_of(number)).seq, number))

        for thread in range(1, threads):
            others = count(first + thread, threads)
            threading.Thread(target=work, args=(others,), daemon=True).start()
        work(count(first, threads))


def wait_for(moment: random.Random, reading: int, path: Path) -> bytes:
    """Return at the *moment* for a kill, with what was heard until then.

    It is at random, from before the log is open to a few records later; or, as often, when the log
    is seen to grow, for a write is short and the rest of a save is long.
    """
    heard = b""
    for _ in range(moment.choice((0, 1, 2, 3, 5, 8))):
        heard += os.read(reading, _ACK.size)
    if heard and moment.random() < 0.5:
        size = path.stat().st_size
        while path.stat().st_size == size:
            pass
        return heard
    for _ in range(moment.randrange(moment.choice((1, 100, 3000, 100_000)))):
        pass
    return heard


def live(path: Path, durability: str, first: int, moment: random.Random) -> Life:
    """Let a process save, and kill it at a random *moment*."""
    reading, writing = os.pipe()
    threads = moment.choice((1, 1, 4))
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            save_on(path, durability, first, threads, lambda said: void(os.write(writing, said)))
        finally:
            os._exit(70)
    os.close(writing)
    heard = wait_for(moment, reading, path)
    os.kill(pid, signal.SIGKILL)
    while said := os.read(reading, 1 << 16):
        heard += said
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it ended by itself"
    pairs = dict(_ACK.iter_unpack(heard))
    pairs.pop(0, None)
    return Life(pairs, first + 1000)


def void(_: object) -> None:
    pass


def kill_often(folder: Path, durability: str, kills: int, seed: int) -> Kills:
    """Kill processes on one log after another, and look what is there after each kill.

    If by then no kill has hit a write, that is tried three times as often again.
    """
    done = acknowledged = torn = 0
    lost: list[str] = []
    for log in range(4 * kills // LIVES):
        if log * LIVES >= kills and torn > kills // 100:
            break
        path = folder / f"{log}.jsonl"
        told: dict[int, int] = {}
        first = 1
        for life in range(LIVES):
            where = f"{durability}, seed {seed}, log {log}, life {life}"
            moment = random.Random(f"{seed} {durability} {log} {life}")

            said, first = live(path, durability, first, moment)
            done += 1

            assert not told.keys() & said.keys(), f"{where}: a seq was given twice"
            told.update(said)
            acknowledged += len(said)
            report = Checkpointer(path).verify()
            torn += report.torn is not None
            assert report.damage is None, f"{where}: {report}"
            found = {record.seq: record.data for record in Checkpointer(path).records()}
            assert list(found) == list(range(1, len(found) + 1)), f"{where}: {list(found)}"
            lost += [f"{where}: record {seq}" for seq in told.keys() - found.keys()]
            for seq in told.keys() & found.keys():
                assert found[seq] == state_of(told[seq]), f"{where}: record {seq} is another"
            numbers = [state["number"] for state in found.values()]
            assert len(numbers) == len(set(numbers)), f"{where}: a record is there twice"
        path.unlink(missing_ok=True)
    return Kills(done, acknowledged, torn, lost)


def check(kills: Kills) -> None:
    print(kills)
    assert kills.lost == []
    assert kills.acknowledged > kills.kills, "hardly anything was saved"
    assert kills.torn > kills.kills // 100, "it does not bite: hardly a write was hit"


@pytest.mark.parametrize("durability", ["sync", "flush"])
def test_a_kill_at_any_moment_loses_nothing_acknowledged(tmp_path, durability):
    check(kill_often(tmp_path, durability, KILLS // 2, seed=1))


@pytest.mark.torture
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("durability", ["sync", "flush"])
def test_thousands_of_kills_lose_nothing_acknowledged(tmp_path, durability, part):
    seed = random.SystemRandom().randrange(2**32)

    check(kill_often(tmp_path, durability, KILLS_IN_TORTURE // 20, seed))


@pytest.mark.parametrize("durability", ["sync", "flush"])
@pytest.mark.parametrize(
    "content, kept, recover",
    [
        (None, (), "tail"),
        (shapes.WHOLE, (1, 2, 3), "tail"),
        (shapes.HALF_A_LINE, (1, 2, 3), "tail"),
        (shapes.LOST_BYTES, (1, 2, 3), "tail"),
        (shapes.NO_LAST_NEWLINE, (1, 2, 3), "tail"),
        (shapes.DAMAGED, (1,), "prefix"),
        (shapes.DAMAGED, (1, 3), "salvage"),
    ],
    ids=["no log", "whole", "half a line", "lost bytes", "no last newline", "prefix", "salvage"],
)
@pytest.mark.filterwarnings("ignore::agent_checkpoint.RecoveryWarning")
def test_a_kill_at_any_operation_of_mending_and_saving_loses_nothing(
    tmp_path, content, kept, recover, durability
):
    def mend_and_save(path: Path, number: int, state: str) -> None:
        run = Checkpointer(path, durability=durability, recover=recover)
        with System(Die(number)).installed(), run:
            run.save(state)

    for number in count(1):
        path = tmp_path / str(number) / "run.jsonl"
        if content is not None:
            path.parent.mkdir()
            path.write_bytes(content)
        ledger = Ledger(shapes.kept(*kept))
        ledger.unknown = ["by the first", "by the second"]

        # Two are killed at the same place, so that the second meets what the first left.
        codes = {in_child(partial(mend_and_save, path, number, state)) for state in ledger.unknown}

        assert codes <= {0, -signal.SIGKILL}
        ledger.settle(path, recover=recover)
        beside = {name.name for name in path.parent.iterdir()} - {"run.jsonl"}
        assert all(name.startswith("run.jsonl.damaged-") for name in beside), beside
        if recover != "tail":
            assert shapes.DAMAGED in [name.read_bytes() for name in path.parent.iterdir()]
        if codes == {0}:
            break
