"""Reading while somebody writes: what was read is what was there, and nobody is in the way."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import Checkpointer
from tests.concurrency.actors import Child, Crew
from tests.crash.faults import Call, System
from tests.logs import build, put, seen


@pytest.mark.parametrize("recover", ["tail", "prefix", "salvage"])
@pytest.mark.parametrize("kind", ["records", "verify", "last_record"])
def test_bytes_that_a_writer_cuts_back_meanwhile_are_no_damage(path: Path, kind, recover) -> None:
    log = build([1, 2, 3])
    put(path, log.content + b"what could not be made durable\n" + log.lines[1])
    reads = 0

    def cut_back(call: Call) -> Any:
        nonlocal reads
        done = call.do()
        if call.name == "pread":
            reads += 1
            if reads == 1:
                os.truncate(path, len(log.content))
        return done

    ckpt = Checkpointer.__new__(Checkpointer)
    with System(cut_back).installed():
        reads = 1
        ckpt.__init__(path, recover=recover)  # type: ignore[misc]
        reads = 0
        found = {
            "records": lambda: seen(ckpt.records()),
            "verify": lambda: ckpt.verify().ok,
            "last_record": lambda: ckpt.last_record and ckpt.last_record.data,
        }[kind]()

    assert found == {"records": log.records, "verify": True, "last_record": 3}[kind]


def test_a_slow_reader_does_not_make_the_handle_forget_what_a_faster_one_saw(path: Path) -> None:
    put(path, build([1]).content)
    ckpt, other = Checkpointer(path), Checkpointer(path)
    is_first = True

    def be_overtaken(call: Call) -> Any:
        nonlocal is_first
        done = call.do()
        if call.name == "pread" and is_first:
            is_first = False
            other.save("theirs")
            assert ckpt.last_record.data == "theirs"
        return done

    with System(be_overtaken).installed():
        slow = ckpt.last_record
    ckpt.save("mine")

    assert slow.data == 1
    assert [record.data for record in ckpt.records()] == [1, "theirs", "mine"]


def test_whoever_has_read_an_emptied_log_to_its_end_may_write_to_it(path: Path) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("before")
    put(path, b"")

    assert list(ckpt.records()) == []
    record = ckpt.save("after")

    assert (record.seq, record.turn) == (1, 1)


def test_threads_that_look_at_one_record_see_one_state(path: Path) -> None:
    ckpt = Checkpointer(path)
    for _ in range(50):
        record = ckpt.save({"messages": [{"n": n} for n in range(50)]})

        states = Crew([partial(getattr, record, "data")] * 8).all_results()

        assert all(state is record.data for state in states)


def test_a_child_reads_a_state_that_another_thread_was_reading_at_the_fork(
    path: Path, child: Callable[[Callable[[], Any]], Child]
) -> None:
    ckpt = Checkpointer(path)
    record = ckpt.save("state")
    read: Any = record._read
    children = []

    def fork_meanwhile() -> Any:
        children.append(child(lambda: record.data))
        return read()

    object.__setattr__(record, "_read", fork_meanwhile)
    (state,) = Crew([lambda: record.data]).all_results()
    object.__setattr__(record, "_read", read)

    assert state == "state"
    assert len(children) == 1


def test_a_handle_does_not_keep_what_it_has_saved(path: Path) -> None:
    with Checkpointer(path) as ckpt:
        ckpt.save({"text": "once"})

        gc.collect()
        kept = [each for each in gc.get_objects() if type(each).__name__ == "_Item"]

    assert kept == []


def test_no_read_depends_on_a_place_that_a_forked_child_would_share(path):
    with Checkpointer(path, durability="flush") as ckpt:
        for number in range(40):
            ckpt.save([number, "x" * 60_000])

    def move_the_place(call: Call) -> Any:
        if call.args and isinstance(call.args[0], int):
            os.lseek(call.args[0], 7, os.SEEK_SET)
        return call.do()

    with System(move_the_place).installed():
        records = list(Checkpointer(path).records())
        last = Checkpointer(path).last_record

    assert [record.data[0] for record in records] == [*range(40)]
    assert last == records[-1]
