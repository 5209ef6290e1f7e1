"""An interrupt at each point of a save where the interpreter looks for one: n = 1, 2, 3 ...

Random ones seldom find the two that matter.
"""

from __future__ import annotations

import dis
import gc
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import agent_checkpoint
from agent_checkpoint import Checkpointer
from tests.concurrency.actors import Child, Crew, is_free
from tests.crash.faults import Call, System

PACKAGE = str(Path(agent_checkpoint.__file__).parent)
LOOKS_FOR_SIGNALS = ("CALL", "RESUME", "JUMP_BACKWARD")
pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other versions trace opcodes, and look, elsewhere"
)
Fork = Callable[[Callable[[], Any]], Child]


class Interrupt:
    """Raises KeyboardInterrupt in this thread at the *number*-th point where Ctrl-C could.

    Those points lie behind a call of a C function, at the beginning of a Python function and where
    a loop turns back: there the interpreter looks for signals. None of them lies between a `with`
    that has its lock and its block, or between the end of the block and the giving up of the lock.
    """

    def __init__(self, number: int) -> None:
        self._left = number
        self._before: dict[FrameType, str] = {}
        self.place = ""

    def __enter__(self) -> Interrupt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            if frame.f_back in self._before:
                self._before[frame.f_back] = ""  # the call was one of a Python function
            self._before[frame] = "RESUME"
        elif event == "opcode":
            before = self._before.get(frame, "")
            self._before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before.startswith(LOOKS_FOR_SIGNALS):
                self._left -= 1
                if self._left == 0:
                    file = Path(frame.f_code.co_filename).name
                    self.place = f"{file}:{frame.f_lineno} in {frame.f_code.co_name}"
                    raise KeyboardInterrupt
        return self._trace


def check_an_interrupt(path: Path, number: int, company: int, *, is_first: bool) -> str:
    """Interrupt the *number*-th point of a save among *company* other threads' saves.

    Returns the place, or nothing if the save has fewer points.
    """
    gc.collect()  # not in the middle of it: what ends there is not this handle's business
    gc.disable()
    ckpt = Checkpointer(path)
    if not is_first:
        ckpt.save("earlier")
    begun = threading.Semaphore(0)
    all_begun = threading.Event()
    interrupt = Interrupt(number)
    acknowledged: list[int] = []

    def interrupted_save() -> None:
        begun.release()
        with interrupt:
            acknowledged.append(ckpt.save("interrupted").seq)

    def other_save(thread: int) -> None:
        begun.release()
        for each in range(2):
            acknowledged.append(ckpt.save([thread, each]).seq)

    def hold_the_first_write(call: Call) -> Any:
        if call.name == "write" and not all_begun.is_set():
            all_begun.wait()
        return call.do()

    def wait_until_all_have_begun() -> None:
        for _ in range(company + 1):
            begun.acquire()
        all_begun.set()

    others = [partial(other_save, thread) for thread in range(company)]
    with System(hold_the_first_write).installed():
        crew = Crew([wait_until_all_have_begun, interrupted_save, *others]).join()
        assert [type(e) for e in crew.errors if e is not None] == [KeyboardInterrupt] * bool(
            interrupt.place
        ), interrupt.place
        (after,) = Crew([partial(ckpt.save, "after")]).all_results()

    records = list(Checkpointer(path, readonly=True).records())
    data = [record.data for record in records if record.data != "interrupted"]
    expected = ["earlier"] * (not is_first) + [[t, n] for t in range(company) for n in (0, 1)]
    assert sorted(map(str, data)) == sorted(map(str, [*expected, "after"])), interrupt.place
    assert len(records) - len(data) <= 1, interrupt.place
    assert records[-1].seq == after.seq == len(records), interrupt.place
    assert {*acknowledged, after.seq} <= {record.seq for record in records}, interrupt.place
    assert len(set(acknowledged)) == len(acknowledged), interrupt.place
    ckpt.close()
    assert is_free(path), interrupt.place
    return interrupt.place


@pytest.mark.parametrize("company", [0, 3])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_interrupt_at_any_point_of_a_save_hurts_no_other_save(
    tmp_path: Path, child: Fork, company: int, is_first: bool
) -> None:
    def check_all() -> list[str]:
        gc.freeze()
        places: list[str] = []
        for number in count(1):
            place = check_an_interrupt(
                tmp_path / f"{number}.jsonl", number, company, is_first=is_first
            )
            if not place:
                return places
            places.append(place)
        raise AssertionError

    places = child(check_all).result()

    assert any("in write_all" in place for place in places)
    assert len(places) > 50


@pytest.mark.parametrize("has", ["opened", "saved"])
@pytest.mark.parametrize("act", ["with", "close"])
def test_an_interrupt_at_any_point_of_taking_and_releasing_leaves_no_lock_behind(
    tmp_path: Path, child: Fork, has: str, act: str
) -> None:
    def check_all() -> list[str]:
        places: list[str] = []
        for number in count(1):
            path = tmp_path / f"{number}.jsonl"
            ckpt = Checkpointer(path)
            if has == "saved":
                ckpt.save("earlier")
            interrupt = Interrupt(number)
            try:
                with interrupt:
                    if act == "with":
                        ckpt.__enter__()
                    else:
                        ckpt.close()
            except KeyboardInterrupt:
                pass
            ckpt.close()
            assert not path.exists() or is_free(path), interrupt.place
            if not interrupt.place:
                return places
            places.append(interrupt.place)
        raise AssertionError

    assert child(check_all).result() != []
