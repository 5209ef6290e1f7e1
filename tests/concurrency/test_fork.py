"""A forked child does not write through its parent's handle, and never unlocks for it."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import Checkpointer, ForkedError, RunLockedError
from tests.concurrency.actors import Child, Crew, Program, Writer, is_free
from tests.crash.faults import Call, System
from tests.logs import build

FULL = os.environ.get("CHECKPOINT_TESTS", "quick") == "full"

Fork = Callable[[Callable[[], Any]], Child]
Writers = Callable[[int], list[Writer]]


def data_in(path: Path) -> list[Any]:
    records = list(Checkpointer(path, readonly=True).records())
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    return [record.data for record in records]


# -- the parent's handle in the child -----------------------------------------------------


@pytest.mark.parametrize("has", ["read", "entered", "saved"])
def test_a_child_cannot_write_through_the_handle_of_its_parent(
    path: Path, child: Fork, has: str
) -> None:
    with Checkpointer(path) as earlier:
        earlier.save("earlier")
    ckpt = Checkpointer(path)
    if has == "entered":
        ckpt.__enter__()
    elif has == "saved":
        ckpt.save("parent")
    before = path.read_bytes()

    forked = child(partial(ckpt.save, "child"))

    with pytest.raises(ForkedError, match="Nothing was written") as refusal:
        forked.result()
    assert (refusal.value.opened_by, refusal.value.pid) == (os.getpid(), forked.pid)
    assert path.read_bytes() == before
    ckpt.save("parent again")
    assert data_in(path)[-1] == "parent again"


def test_a_child_cannot_lock_through_the_handle_of_its_parent(path: Path, child: Fork) -> None:
    ckpt = Checkpointer(path)

    with pytest.raises(ForkedError):
        child(ckpt.__enter__).result()

    assert not path.exists()


def test_a_child_of_a_child_cannot_write_either(path: Path, child: Fork) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("parent")

    with pytest.raises(ForkedError) as refusal:
        child(lambda: Child(partial(ckpt.save, "grandchild")).result()).result()

    assert refusal.value.opened_by == os.getpid()


def test_a_child_reads_through_the_handle_of_its_parent(path: Path, child: Fork) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("one")
    ckpt.save("two")

    def read() -> list[Any]:
        last = ckpt.last_record
        return [
            last and last.data,
            [record.data for record in ckpt.records()],
            ckpt.at(1).data,
            ckpt.verify().ok,
        ]

    assert child(read).result() == ["two", ["one", "two"], "one", True]
    assert ckpt.save("three").seq == 3


def test_a_child_cannot_write_after_it_has_read(path: Path, child: Fork) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("parent")

    def read_and_save() -> None:
        assert ckpt.last_record is not None
        ckpt.save("child")

    with pytest.raises(ForkedError):
        child(read_and_save).result()

    assert data_in(path) == ["parent"]


def test_a_child_cannot_write_while_a_thread_of_its_parent_does(path: Path, child: Fork) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("parent")
    in_sync, may_go_on = threading.Event(), threading.Event()

    def wait_in_sync(call: Call) -> Any:
        if call.name == "fdatasync":
            in_sync.set()
            may_go_on.wait()
        return call.do()

    with System(wait_in_sync).installed():
        crew = Crew([partial(ckpt.save, "a thread's"), partial(ckpt.save, "another's")])
        in_sync.wait()
        forked = child(partial(ckpt.save, "child"))
        try:
            with pytest.raises(ForkedError):
                forked.result()
        finally:
            may_go_on.set()
        crew.all_results()

    assert sorted(data_in(path)) == ["a thread's", "another's", "parent"]


def test_a_child_closes_what_its_parent_holds_while_a_thread_of_the_parent_writes(
    path: Path, child: Fork
) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("parent")
    in_sync, may_go_on = threading.Event(), threading.Event()

    def wait_in_sync(call: Call) -> Any:
        if call.name == "fdatasync":
            in_sync.set()
            may_go_on.wait()
        return call.do()

    def close_and_collect() -> bool:
        ckpt.close()
        gc.collect()
        return is_free(path)

    with System(wait_in_sync).installed():
        crew = Crew([partial(ckpt.save, "a thread's")])
        in_sync.wait()
        try:
            assert child(close_and_collect).result() is False
        finally:
            may_go_on.set()
        crew.all_results()

    ckpt.save("parent again")
    assert data_in(path) == ["parent", "a thread's", "parent again"]


# -- the lock -----------------------------------------------------------------------------


def exits(handles: list[Checkpointer]) -> None:
    pass


def closes(handles: list[Checkpointer]) -> None:
    for handle in handles:
        handle.close()


def leaves_the_block(handles: list[Checkpointer]) -> None:
    for handle in handles:
        handle.__exit__(None, None, None)


def collects(handles: list[Checkpointer]) -> None:
    handles.clear()
    gc.collect()


def fails_to_save(handles: list[Checkpointer]) -> None:
    for handle in handles:
        with pytest.raises(ForkedError):
            handle.save("child")


def opens_the_same(handles: list[Checkpointer]) -> None:
    ckpt = Checkpointer(handles[0].path)
    with pytest.raises(RunLockedError) as refusal:
        ckpt.save("child")
    assert refusal.value.pid in (os.getppid(), None)
    ckpt.close()


@pytest.mark.parametrize(
    "act", [exits, closes, leaves_the_block, collects, fails_to_save, opens_the_same]
)
def test_what_a_child_does_never_unlocks_for_its_parent(
    path: Path, child: Fork, writers: Writers, act: Callable[[list[Checkpointer]], None]
) -> None:
    handles = [Checkpointer(path)]
    handles[0].save("parent")
    (third,) = writers(1)
    third.open(path)

    child(partial(act, handles)).result()

    with pytest.raises(RunLockedError) as refusal:
        third.save("third")
    assert refusal.value.pid in (os.getpid(), None)
    handles[0].save("parent again")
    assert data_in(path) == ["parent", "parent again"]


EXITS_AS_PROGRAMS_DO = """
import os, sys
from agent_checkpoint import Checkpointer
ckpt = Checkpointer(sys.argv[1])
ckpt.save("parent")
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
    print("the child is gone", flush=True)
    sys.stdin.read()
"""


def test_a_child_that_runs_to_the_end_of_its_program_does_not_unlock_for_its_parent(
    path: Path, program: Callable[..., Program], writers: Writers
) -> None:
    parent = program(EXITS_AS_PROGRAMS_DO, path)
    (third,) = writers(1)

    assert parent.read_line() == "the child is gone"

    third.open(path)
    with pytest.raises(RunLockedError) as refusal:
        third.save("third")
    assert refusal.value.pid in (parent.pid, None)


def test_a_child_may_open_the_run_once_its_parent_has_closed_it(path: Path, child: Fork) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("parent")
    ckpt.close()

    def go_on() -> int:
        with Checkpointer(path) as mine:
            return mine.save("child").seq

    assert child(go_on).result() == 2
    assert data_in(path) == ["parent", "child"]


OUTLIVED = """
import fcntl, os, sys, threading, warnings
from agent_checkpoint import Checkpointer
path, moment = sys.argv[1:]
ckpt = Checkpointer(path, recover="prefix" if moment == "has made its successor" else "tail")
reached, forked, locked = threading.Event(), threading.Event(), threading.Event()
if moment == "saved":
    ckpt.save("parent")
    reached.set()
elif moment == "entered":
    ckpt.__enter__()
    reached.set()
elif moment in ("has opened it", "has made its successor"):
    # A thread has the descriptor, and asks for the lock once the child has it too.
    fstat = os.fstat
    wanted = path if moment == "has opened it" else os.path.join(
        os.path.dirname(path), f".{os.path.basename(path)}.rewrite"
    )
    def fstat_later(fd):
        found = fstat(fd)
        if os.path.exists(wanted) and os.path.samestat(found, os.stat(wanted)):
            reached.set()
            forked.wait()
        return found
    os.fstat = fstat_later
    def save():
        warnings.simplefilter("ignore")
        ckpt.save("thread")
        locked.set()
    threading.Thread(target=save, daemon=True).start()
else:
    # A thread is about to have the lock, or has just got it, and is no further.
    flock = fcntl.flock
    def stop_here(fd, how):
        if moment == "has the lock":
            flock(fd, how)
        reached.set()
        threading.Event().wait()
    fcntl.flock = stop_here
    threading.Thread(target=ckpt.save, args=("thread",), daemon=True).start()
reached.wait()
if os.fork() == 0:
    os.write(1, b"%d\\n" % os.getpid())
elif moment in ("has opened it", "has made its successor"):
    forked.set()
    locked.wait()
    os.write(1, b"locked\\n")
sys.stdin.read()
"""


MOMENTS = [
    "saved",
    "entered",
    "has opened it",
    "has made its successor",
    "asks for the lock",
    "has the lock",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_run_locked(
    path: Path, program: Callable[..., Program], moment: str
) -> None:
    if moment == "has made its successor":
        path.write_bytes(build(["kept"]).content + b"damage\n")
    parent = program(OUTLIVED, path, moment)
    said = {parent.read_line() for _ in range(1 + moment.startswith(("has opened", "has made")))}
    child_pid = int((said - {"locked"}).pop())
    mine = Checkpointer(path)
    if moment != "asks for the lock":
        with pytest.raises(RunLockedError):
            mine.save("refused")

    parent.kill()

    os.kill(child_pid, 0)  # it lives
    mine.save("mine")
    assert data_in(path)[-1] == "mine"


# -- the child's own log ------------------------------------------------------------------


def test_a_child_forked_in_the_middle_of_other_saves_works_on_a_log_of_its_own(
    tmp_path: Path, child: Fork
) -> None:
    ckpt = Checkpointer(tmp_path / "parent.jsonl")
    ckpt.save("parent")
    stop = threading.Event()

    def save_on() -> int:
        saved = 0
        while not stop.is_set():
            ckpt.save("a thread's")
            saved += 1
        return saved

    def open_and_close() -> int:
        opened = 0
        while not stop.is_set():
            with Checkpointer(tmp_path / "other.jsonl") as other:
                other.save("a thread's")
            opened += 1
        return opened

    def work(number: int) -> list[int]:
        with Checkpointer(tmp_path / f"{number}.jsonl") as mine:
            seqs = [mine.save(number).seq for _ in range(3)]
        assert is_free(tmp_path / f"{number}.jsonl")
        assert ckpt.last_record is not None
        ckpt.close()
        return seqs

    crew = Crew([save_on] * 4 + [open_and_close])
    try:
        for number in range(60 if FULL else 15):
            assert child(partial(work, number)).result() == [1, 2, 3]
    finally:
        stop.set()
    saved = crew.all_results()

    assert data_in(tmp_path / "parent.jsonl") == ["parent"] + ["a thread's"] * sum(saved[:4])
    assert data_in(tmp_path / "other.jsonl") == ["a thread's"] * saved[4]
    assert not is_free(tmp_path / "parent.jsonl")
    assert is_free(tmp_path / "other.jsonl")


def test_a_child_works_on_a_log_of_its_own_whatever_its_parent_is_in_the_middle_of(
    tmp_path: Path, child: Fork
) -> None:
    # A thread stops before each of its operations, and each time a child is forked.
    names: list[str] = []
    reached, may_go_on = threading.Semaphore(0), threading.Semaphore(0)
    forking = threading.current_thread()

    def stop_first(call: Call) -> Any:
        if threading.current_thread() is not forking:
            names.append(call.name)
            reached.release()
            may_go_on.acquire()
        return call.do()

    def save() -> None:
        Checkpointer(tmp_path / "parent.jsonl").save("parent")
        names.append("done")
        reached.release()

    def work(number: int) -> list[bool]:
        with Checkpointer(tmp_path / f"{number}.jsonl") as mine:
            mine.save("child")
            is_mine = not is_free(tmp_path / f"{number}.jsonl")
        return [is_mine, is_free(tmp_path / f"{number}.jsonl")]

    with System(stop_first).installed():
        crew = Crew([save])
        reached.acquire()
        while names[-1] != "done":
            assert child(partial(work, len(names))).result() == [True, True]
            may_go_on.release()
            reached.acquire()
        crew.all_results()

    assert {"flock", "write", "fdatasync", "fsync"} <= set(names)
    assert data_in(tmp_path / "parent.jsonl") == ["parent"]


MULTIPROCESSING = """
import multiprocessing, os, sys
from agent_checkpoint import Checkpointer, ForkedError, RunLockedError

ckpt = None

def work(path, pipe):
    answers = {"own": Checkpointer(f"{path}.own").save({}).seq}
    try:
        Checkpointer(path).save("child")
    except RunLockedError as error:
        answers["locked by"] = error.pid
    if ckpt is not None:
        try:
            ckpt.save("child")
        except ForkedError as error:
            answers["opened by"] = error.opened_by
    pipe.send(answers)

if __name__ == "__main__":
    path, how = sys.argv[1:]
    context = multiprocessing.get_context(how)
    ckpt = Checkpointer(path)
    ckpt.save("parent")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(path, there))
    process.start()
    answers = here.recv()
    process.join()
    answers["exit code"] = process.exitcode
    print(json.dumps(answers), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_multiprocessing_children_write_to_their_own_logs_only(
    path: Path, program: Callable[..., Program], writers: Writers, how: str
) -> None:
    script = path.with_name("script.py")
    script.write_text("import json\n" + MULTIPROCESSING)
    parent = program(script, path, how)
    (third,) = writers(1)

    answers = json.loads(parent.read_line())

    pid = parent.pid if sys.platform == "linux" else None
    assert answers.pop("opened by", None) == (parent.pid if how == "fork" else None)
    assert answers == {"own": 1, "locked by": pid, "exit code": 0}
    third.open(path)
    with pytest.raises(RunLockedError):
        third.save("third")
    assert data_in(path) == ["parent"]
