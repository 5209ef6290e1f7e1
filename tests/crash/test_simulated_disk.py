"""What a power cut leaves at any moment, on a simulated disk: nothing acknowledged is lost.

The package works on real files; what it does to them is recorded, and from that is made all that a
disk may hold that loses what was not synced. Each of these folders is opened, read and gone on in.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_checkpoint import Checkpointer, CheckpointError, UnknownOutcomeError
from tests.crash import shapes
from tests.crash.disk import Disk, Event, Recorder
from tests.crash.faults import Call, Die, Rule, ShortWrite, System, in_child, no_hang
from tests.crash.ledger import Ledger
from tests.logs import folder_in_memory

pytestmark = [
    pytest.mark.filterwarnings("ignore::agent_checkpoint.TornTailWarning"),
    pytest.mark.filterwarnings("ignore::agent_checkpoint.RecoveryWarning"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with no_hang(), folder_in_memory(tmp_path) as folder:
        yield folder


class Start(NamedTuple):
    """What is on the disk before the first process starts."""

    log: bytes | None
    kept: tuple[int, ...] = (1, 2, 3)
    recover: str = "tail"
    path: str = "run.jsonl"


STARTS = {
    "nothing": Start(None, ()),
    "nothing, not even the folder": Start(None, (), path="runs/run.jsonl"),
    "nothing, not even the folders": Start(None, (), path="runs/today/run.jsonl"),
    "a whole log": Start(shapes.WHOLE),
    "half a line": Start(shapes.HALF_A_LINE),
    "lost bytes": Start(shapes.LOST_BYTES),
    "no last newline": Start(shapes.NO_LAST_NEWLINE),
    "damage and prefix": Start(shapes.DAMAGED, (1,), "prefix"),
    "damage and salvage": Start(shapes.DAMAGED, (1, 3), "salvage"),
}
STATES = ("first", {"text": "second " + "y" * 1500}, "third")


class Machine:
    """A folder, the processes that work in it, and what they do to the disk."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.folder, self.start = folder / "machine", start
        self.path = self.folder / start.path
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if start.log is not None:
            self.path.write_bytes(start.log)
        self.disk = Disk(self.folder)
        self.events: list[Event] = []
        self.recorder = Recorder(self.events.append)

    def work(self, rule: Rule = Call.do, prefix: str = "") -> None:
        """Save some states, as a program does that opens the log once more after an error."""
        with System(rule, self.recorder.watch).installed():
            run = self._open()
            for state in STATES:
                if not self._save(run, [prefix, state]):
                    run.close()
                    run = self._open()
            run.close()

    def die(self, number: int) -> bool:
        """Do the same in a process that dies at its *number*-th operation; tell whether it did."""
        reading, writing = os.pipe()
        self.recorder = Recorder(lambda event: void(os.write(writing, pickle.dumps(event))))
        code = in_child(lambda: self.work(Die(number), f"by the dead, {number}"))
        self.recorder = Recorder(self.events.append)
        os.close(writing)
        with os.fdopen(reading, "rb") as notes:
            while notes.peek(1):
                self.events.append(pickle.load(notes))
        assert code in (0, -9)
        return code != 0

    def _open(self) -> Checkpointer:
        return Checkpointer(self.path, recover=self.start.recover)

    def _save(self, run: Checkpointer, state: object) -> bool:
        note = self.recorder.note
        note("try", state)
        try:
            record = run.save(state)
        except UnknownOutcomeError:
            return False
        except CheckpointError:
            note("refused", state)
            return False
        note("acknowledge", record.seq, state)
        return True


def void(_: object) -> None:
    pass


def at_risk(machine: Machine) -> list[str]:
    """Return what a power cut could still take when a save had returned."""
    risks = []
    for event in machine.events:
        machine.disk.apply(event)
        if event.kind == "acknowledge":
            risks += [
                f"record {event.args[0]}: {r}" for r in machine.disk.at_risk(machine.start.path)
            ]
    return risks


def cut_power(machine: Machine) -> int:
    """Cut the power after each event, and go on from all that may be there; return how many."""
    ledger = Ledger(shapes.kept(*machine.start.kept))
    scratch = machine.folder.with_name("scratch")
    seen: set[object] = set()
    for number, event in enumerate([Event("start", ()), *machine.events]):
        machine.disk.apply(event)
        if event.kind == "try":
            ledger.unknown.append(event.args[0])
        elif event.kind == "refused":
            ledger.unknown.remove(event.args[0])
        elif event.kind == "acknowledge":
            ledger.acknowledged[event.args[0]] = event.args[1]
            ledger.unknown.remove(event.args[1])
        for state in machine.disk.states():
            known = (frozenset(state.items()), len(ledger.acknowledged), len(ledger.unknown))
            if known not in seen:
                seen.add(known)
                try:
                    go_on_from(state, machine.start, scratch, ledger)
                except (AssertionError, CheckpointError) as problem:
                    what = {path: (len(c), c.count(0)) for path, c in state.items()}
                    raise AssertionError(
                        f"{problem}, after event {number}, {event.kind}: {what}"
                    ) from problem
    return len(seen)


def go_on_from(state: dict[str, bytes], start: Start, scratch: Path, told: Ledger) -> None:
    """Do what a program does when the machine is up again."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name, content in state.items():
        path = scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    ledger = Ledger(told.kept)
    ledger.acknowledged.update(told.acknowledged)
    ledger.unknown.extend(told.unknown)
    path = scratch / start.path

    if start.recover == "tail":
        assert Checkpointer(path).verify().damage is None
    ledger.settle(path, recover=start.recover)


@pytest.mark.parametrize("name", STARTS)
def test_when_save_returns_the_record_and_the_names_above_it_are_on_the_disk(folder, name):
    machine = Machine(folder, STARTS[name])

    machine.work()

    assert [event.kind for event in machine.events].count("acknowledge") == len(STATES)
    assert at_risk(machine) == []


@pytest.mark.parametrize(
    "name",
    STARTS,
)
def test_the_same_holds_after_a_process_that_died_at_any_operation(folder, name):
    for number in count(1):
        machine = Machine(folder, STARTS[name])
        has_died = machine.die(number)

        machine.work()

        assert at_risk(machine) == [], f"the one before died at operation {number}"
        if not has_died:
            break


@pytest.mark.parametrize("name", STARTS)
def test_a_power_cut_at_any_moment_loses_nothing_acknowledged(folder, name):
    machine = Machine(folder, STARTS[name])

    machine.work()

    assert cut_power(machine) > 20


@pytest.mark.parametrize("name", STARTS)
def test_a_power_cut_after_a_process_that_died_loses_nothing_acknowledged(folder, name):
    for number in count(1, 4):
        machine = Machine(folder, STARTS[name])
        has_died = machine.die(number)

        machine.work()

        cut_power(machine)
        if not has_died:
            break


class LieAfterFailedSync:
    """Fail the *number*-th sync of a file as Linux does: what it did not write is called clean."""

    def __init__(self, number: int, machine: Machine) -> None:
        self.number, self.machine = number, machine
        self.syncs = 0

    def __call__(self, call: Call) -> Any:
        if call.name == "fdatasync":
            self.syncs += 1
            if self.syncs == self.number:
                self.machine.recorder.note("failed sync", os.fstat(call.args[0]).st_ino)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call.do()


@pytest.mark.parametrize(
    "name",
    STARTS,
)
def test_a_power_cut_after_a_failed_sync_loses_nothing_acknowledged(folder, name):
    for number in count(1):
        machine = Machine(folder, STARTS[name])
        rule = LieAfterFailedSync(number, machine)

        machine.work(rule)

        cut_power(machine)
        if rule.syncs < number:
            break


@pytest.mark.parametrize(
    "name",
    STARTS,
)
def test_a_sync_that_fails_when_a_log_is_opened_is_not_believed_later(folder, name):
    """The one before died with its last record written and not synced; then the disk fails."""
    for number in count(1):
        machine = Machine(folder, STARTS[name])
        has_died = machine.die(number)

        machine.work(LieAfterFailedSync(1, machine))

        cut_power(machine)
        if not has_died:
            break


@pytest.mark.parametrize("name", ["nothing", "a whole log", "half a line"])
def test_a_power_cut_after_half_a_write_loses_nothing_acknowledged(folder, name):
    for number in (1, 2, 3):
        for code in (None, errno.ENOSPC):
            machine = Machine(folder, STARTS[name])

            machine.work(ShortWrite(number, 50, code))

            assert cut_power(machine) > 20


@pytest.mark.parametrize("name", ["damage and prefix", "damage and salvage"])
def test_a_power_cut_never_takes_the_damaged_log_that_was_put_aside(folder, name):
    machine = Machine(folder, STARTS[name])

    machine.work()

    for event in machine.events:
        machine.disk.apply(event)
        for state in machine.disk.states():
            assert shapes.DAMAGED in state.values(), event


class WaitForOthers:
    """Sync only once *everybody* has called save: those who wait share the next write."""

    def __init__(self) -> None:
        self.arrived = 0
        self.everybody = 0

    def __call__(self, call: Call) -> Any:
        if call.name == "fdatasync":
            while self.arrived < self.everybody:
                os.sched_yield()
            for _ in range(1000):
                os.sched_yield()  # from there to the queue it is a few steps
        return call.do()


@pytest.fixture
def shared(folder: Path) -> Machine:
    """Return a machine on which seven saves of seven threads were written at once."""
    machine = Machine(folder, STARTS["a whole log"])
    rule = WaitForOthers()
    with System(rule, machine.recorder.watch).installed(), machine._open() as run:

        def save(number: int) -> None:
            rule.arrived += 1
            machine._save(run, [number, "z" * 200])

        threads = [threading.Thread(target=save, args=(number,)) for number in range(8)]
        rule.everybody = len(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    writes = [event.args[2] for event in machine.events if event.kind == "write"]
    assert max(data.count(b"\n") for data in writes) > 1, "no two saves were written at once"
    return machine


def test_threads_that_share_a_sync_return_when_their_own_record_is_on_the_disk(shared):
    assert at_risk(shared) == []


def test_a_power_cut_in_the_middle_of_a_shared_write_loses_nothing_acknowledged(shared):
    """It can leave lost sectors with whole lines behind them: damage, to go on from by prefix."""
    shared.start = shared.start._replace(recover="prefix")

    assert cut_power(shared) > 20


def pretend(*names: str) -> Rule:
    """Return a rule by which the operations *names* say that they did it, and did nothing."""
    return lambda call: None if call.name in names else call.do()


@pytest.mark.parametrize("operation", ["fdatasync", "fsync"])
def test_a_missing_sync_shows(folder, operation):
    """These tests bite: a package that did not call it would fail them."""
    machine, other = (Machine(folder / sub, STARTS["nothing"]) for sub in "ab")
    machine.work(pretend(operation))
    other.work(pretend(operation))

    assert at_risk(machine) != []
    with pytest.raises(AssertionError, match="an acknowledged record is lost"):
        cut_power(other)
