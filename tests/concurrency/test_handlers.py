"""A signal handler does whatever it likes in the middle of an operation; so does Ctrl-C."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

import agent_checkpoint
from agent_checkpoint import (
    ArgumentError,
    Checkpointer,
    CheckpointError,
    ForkedError,
    ReentrantSaveError,
    RunLockedError,
    UnstorableError,
)
from agent_checkpoint._shared_write import SharedWrite
from agent_checkpoint.stores._mutex import is_mine, locked
from tests.concurrency.actors import Child, Crew, is_free
from tests.crash.faults import Call, System

Fork = Callable[[Callable[[], Any]], Child]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


class HitAtTheEnd:
    """A mutex that an interrupt keeps from being given up at the end of its first block.

    Up to Python 3.10 that can happen between any two steps of the interpreter.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._is_owned = self._mutex._is_owned  # type: ignore[attr-defined]
        self.release = self._mutex.release
        self.acquire = self._mutex.acquire

    def __enter__(self) -> bool:
        return self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_at_the_end_of_a_block_leaves_no_mutex_taken() -> None:
    mutex = cast("threading.RLock", HitAtTheEnd())

    with pytest.raises(KeyboardInterrupt):
        locked(mutex, int)

    assert not is_mine(mutex)
    assert Crew([partial(mutex.acquire, timeout=0)]).all_results() == [True]


def test_what_runs_in_the_middle_of_a_block_does_not_give_up_its_mutex() -> None:
    mutex = threading.RLock()

    def fail() -> None:
        raise KeyboardInterrupt

    def outer() -> bool:
        with pytest.raises(KeyboardInterrupt):
            locked(mutex, fail)
        return is_mine(mutex)

    assert locked(mutex, outer)
    assert not is_mine(mutex)


def in_the_middle(number: int, act: Callable[[], object]) -> System:
    """Return a system in which *act* runs before the *number*-th operation, once."""

    def rule(call: Call) -> Any:
        if call.number == number:
            act()
        return call.do()

    return System(rule)


@pytest.mark.parametrize("has", ["opened", "saved"])
def test_closing_every_handle_of_a_run_in_the_middle_of_a_save_frees_it(
    tmp_path: Path, has: str
) -> None:
    for number in count(1):
        path = tmp_path / f"{number}.jsonl"
        other, ckpt = Checkpointer(path), Checkpointer(path)
        if has == "saved":
            other.save("other")
            assert ckpt.last_record
            ckpt.save("earlier")

        def close_both(handles: tuple[Checkpointer, ...] = (ckpt, other)) -> None:
            for each in handles:
                each.close()

        system = in_the_middle(number, close_both)
        with system.installed():
            try:
                ckpt.save("last")
                saved = ["last"]
            except CheckpointError:
                saved = []

        if len(system.names) < number:
            close_both()
        assert not path.exists() or is_free(path), number
        earlier = ["other", "earlier"] if has == "saved" else []
        data = [record.data for record in Checkpointer(path, readonly=True).records()]
        assert data == earlier + saved, number
        if len(system.names) < number:
            break
    assert number > 3


@pytest.mark.parametrize("has", ["opened", "saved"])
def test_a_child_that_a_handler_forks_in_the_middle_of_a_save_writes_nothing(
    tmp_path: Path, child: Fork, has: str
) -> None:
    def save_and_fork(path: Path, number: int) -> tuple[int, bool]:
        """Return how the grandchild that came back into the save fared, if there was one."""
        ckpt = Checkpointer(path)
        if has == "saved":
            ckpt.save("earlier")
        pids: list[int] = []
        statuses: list[int] = []

        def fork_and_wait() -> None:
            pids.append(os.fork())
            if pids[0] != 0:
                statuses.append(os.waitpid(pids[0], 0)[1])

        with in_the_middle(number, fork_and_wait).installed():
            try:
                ckpt.save("parent")
            except (ForkedError, RunLockedError):
                os._exit(7 if pids == [0] else 8)
            except BaseException:
                os._exit(9)
            if pids == [0]:
                os._exit(10)
        if not pids:
            return 7, True
        return os.WEXITSTATUS(statuses[0]), False

    for number in count(1):
        path = tmp_path / f"{number}.jsonl"

        code, is_last = child(partial(save_and_fork, path, number)).result()

        assert code == 7, number
        data = [record.data for record in Checkpointer(path).records()]
        assert data == (["earlier"] if has == "saved" else []) + ["parent"], number
        if is_last:
            break
    assert number > 3


PACKAGE = str(Path(agent_checkpoint.__file__).parent)


class AtLine:
    """Does *act*, as a signal handler would, before the *number*-th line of the package."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self._left, self._act = number, act
        self.place = ""

    def __enter__(self) -> AtLine:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line" and not self.place:
            self._left -= 1
            if self._left == 0:
                self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self._act()
        return self._trace


@pytest.mark.parametrize("has", ["opened", "saved"])
@pytest.mark.parametrize("act", ["save", "with", "close"])
def test_a_handler_may_close_at_any_line(tmp_path: Path, has: str, act: str) -> None:
    for number in count(1):
        path = tmp_path / f"{number}.jsonl"
        ckpt = Checkpointer(path)
        expected = []
        if has == "saved":
            ckpt.save("earlier")
            expected.append("earlier")

        at_line = AtLine(number, ckpt.close)
        try:
            with at_line:
                if act == "save":
                    ckpt.save("last")
                elif act == "with":
                    ckpt.__enter__()
                else:
                    ckpt.close()
            expected += ["last"] * (act == "save")
        except CheckpointError:
            pass

        ckpt.close()
        assert not path.exists() or is_free(path), at_line.place
        data = [record.data for record in Checkpointer(path, readonly=True).records()]
        assert data == expected, at_line.place
        if not at_line.place:
            break
    assert number > 10


def test_a_state_that_is_changed_at_any_line_of_a_save_is_saved_or_refused_in_our_words(
    path: Path,
) -> None:
    ckpt = Checkpointer(path, durability="flush")
    outcomes: set[object] = set()
    for number in count(1):
        state: dict[str, Any] = {"new": 1}

        with AtLine(number, partial(state.update, new={1})) as at_line:
            try:
                outcomes.add(ckpt.save(state).data["new"])
            except ArgumentError as error:
                outcomes.add(type(error))

        if not at_line.place:
            break
    assert outcomes == {1, UnstorableError}
    assert {record.data["new"] for record in ckpt.records()} == {1}


@pytest.mark.parametrize("end", ["close", "forget"])
def test_a_handler_may_open_the_run_again_at_any_line_of_the_end_of_a_handle(
    tmp_path: Path, end: str
) -> None:
    for number in count(1):
        path = tmp_path / f"{number}.jsonl"
        old = [Checkpointer(path)]
        old[0].save("old")
        new: list[Checkpointer] = []

        expected = ["old"]

        def open_again(
            path: Path = path, new: list[Checkpointer] = new, expected: list[str] = expected
        ) -> None:
            new.append(Checkpointer(path))
            try:
                new[0].save("in the middle")
                expected.append("in the middle")
            except ReentrantSaveError:
                pass  # this line has the log in its hands

        with AtLine(number, open_again) as at_line:
            if end == "close":
                old[0].close()
            old.clear()

        if not at_line.place:
            break
        new[0].save("behind it")
        new[0].close()
        assert is_free(path), at_line.place
        data = [record.data for record in Checkpointer(path).records()]
        assert data == [*expected, "behind it"], at_line.place
    assert number > 10


@pytest.mark.parametrize("which", ["gate", "writing"])
def test_an_interrupt_at_the_end_of_a_shared_write_leaves_no_mutex_taken(which: str) -> None:
    writes: SharedWrite[Waiting] = SharedWrite("run.jsonl")
    mutex = cast("threading.RLock", HitAtTheEnd())
    if which == "gate":
        writes._queue.gate = mutex
    else:
        writes._writing = mutex

    with pytest.raises(KeyboardInterrupt):
        writes.run(Waiting(), commit)

    assert not is_mine(mutex)


def test_a_save_of_a_handler_leaves_the_gate_to_the_save_that_it_interrupts() -> None:
    writes: SharedWrite[Waiting] = SharedWrite("run.jsonl")
    gate = writes._queue.gate

    def refuse(items: list[Waiting]) -> None:
        raise KeyboardInterrupt

    with gate:
        with pytest.raises(KeyboardInterrupt):
            writes.run(Waiting(), refuse)
        assert is_mine(gate)


class Waiting:
    """An item of a shared write."""

    def __init__(self) -> None:
        self.done = False


def commit(items: list[Waiting]) -> None:
    for item in items:
        item.done = True
