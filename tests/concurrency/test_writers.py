"""A run has one writer. Whoever lost finds out before it writes."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agent_checkpoint import (
    Checkpointer,
    ConflictError,
    LogReplacedError,
    RecoveryWarning,
    RunLockedError,
)
from tests.concurrency.actors import Writer, is_free
from tests.crash.faults import Call, System

FULL = os.environ.get("CHECKPOINT_TESTS", "quick") == "full"

Writers = Callable[[int], list[Writer]]


def fill(path: Path, count: int) -> None:
    """Save 0, 1, 2 ... and let go of the run."""
    with Checkpointer(path) as ckpt:
        for number in range(count):
            ckpt.save(number)


def data_in(path: Path) -> list[Any]:
    """Return the states in the log at *path*, whose seqs have no gap."""
    records = list(Checkpointer(path, readonly=True).records())
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    return [record.data for record in records]


def snapshot(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return what a write, or anything else but reading, would change in *folder*."""
    found = {".": (b"", folder.stat().st_mtime_ns, folder.stat().st_ino)}
    for file in folder.iterdir():
        status = file.stat()
        found[file.name] = (file.read_bytes(), status.st_mtime_ns, status.st_ino)
    return found


def replace_by_copy(path: Path) -> None:
    """Put another file with the same bytes in the place of *path*, as ``sed -i`` does."""
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    os.replace(copy, path)


# -- two processes ------------------------------------------------------------------------


def test_the_second_process_is_refused_before_it_writes_and_told_who_holds_the_run(
    path: Path, writers: Writers
) -> None:
    first, second = writers(2)
    first.open(path)
    second.open(path)
    first.save("first")
    before = snapshot(path.parent)

    with pytest.raises(RunLockedError) as refusal:
        second.save("second")

    assert snapshot(path.parent) == before
    assert refusal.value.pid == (first.pid if sys.platform == "linux" else None)
    assert f"process {first.pid} is writing" in str(refusal.value) or sys.platform != "linux"
    assert data_in(path) == ["first"]


@pytest.mark.parametrize("end", ["close", "drop", "exit", "kill"])
def test_a_run_is_free_once_its_writer_has_ended(path: Path, writers: Writers, end: str) -> None:
    first, second = writers(2)
    first.open(path)
    first.save("first")
    second.open(path)
    with pytest.raises(RunLockedError):
        second.save("refused")

    getattr(first, end)()

    assert second.save("second") == (2, 2)
    assert data_in(path) == ["first", "second"]


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("earlier", [0, 1, 3])
def test_a_log_that_has_grown_is_not_appended_to_even_if_its_writer_is_gone(
    path: Path, writers: Writers, earlier: int, end: str
) -> None:
    fill(path, earlier)
    mine = Checkpointer(path)
    (other,) = writers(1)
    other.open(path)
    other.save("theirs")
    other.save("theirs too")
    getattr(other, end)()
    before = snapshot(path.parent)

    for _ in range(2):
        with pytest.raises(ConflictError, match="Nothing was written") as conflict:
            mine.save("mine")

        assert (conflict.value.expected, conflict.value.actual) == (earlier, earlier + 2)
        assert snapshot(path.parent) == before
        assert is_free(path)


@pytest.mark.parametrize("read", ["last", "read"])
def test_reading_to_the_end_makes_saving_possible_again(
    path: Path, writers: Writers, read: str
) -> None:
    first, second = writers(2)
    first.open(path)
    first.save("first")
    first.close()
    second.open(path)
    first.open(path)
    first.save("first again")
    first.close()
    with pytest.raises(ConflictError):
        second.save("refused")

    getattr(second, read)()

    assert second.save("second") == (3, 3)
    assert data_in(path) == ["first", "first again", "second"]


def test_reading_a_part_does_not_make_saving_possible(path: Path, writers: Writers) -> None:
    mine = Checkpointer(path)
    (other,) = writers(1)
    other.open(path)
    other.save("theirs")
    other.save("theirs too")
    other.close()

    first = next(mine.records())

    assert first.data == "theirs"
    with pytest.raises(ConflictError):
        mine.save("mine")
    assert data_in(path) == ["theirs", "theirs too"]


@pytest.mark.parametrize("before", [None, b"", b"whole", b"torn"])
def test_with_takes_the_lock_at_once_and_writes_nothing(
    path: Path, writers: Writers, before: bytes | None
) -> None:
    if before is not None:
        path.write_bytes(content(before))
    seen = len(data_in(path))
    first, second = writers(2)
    first.open(path)
    second.open(path)

    first.enter()

    assert path.read_bytes() == content(before or b"")
    with pytest.raises(RunLockedError):
        second.save("second")
    with pytest.raises(RunLockedError):
        second.enter()
    assert path.read_bytes() == content(before or b"")
    if before != b"torn":
        assert first.save("first") == (seen + 1, seen + 1)


@pytest.mark.parametrize("before", [None, b"", b"whole", b"torn"])
@pytest.mark.parametrize("held", [False, True])
def test_opening_and_reading_take_nothing_over_and_change_nothing(
    path: Path, writers: Writers, held: bool, before: bytes | None
) -> None:
    if before is not None:
        path.write_bytes(content(before))
    holder, reader = writers(2)
    if held:
        holder.open(path)
        holder.enter()
    unchanged = snapshot(path.parent)

    reader.open(path)
    reader.last()
    reader.read()
    mine = Checkpointer(path)
    records = list(mine.records())
    mine.verify()
    mine.close()

    assert snapshot(path.parent) == unchanged
    assert len(records) == (2 if before in (b"whole", b"torn") else 0)
    assert not path.exists() or is_free(path) is not held


def content(name: bytes) -> bytes:
    """Return the bytes of a log that is whole, torn or empty."""
    whole = b'{"turn":1,"ts":1.0,"data":1,"meta":{}}\n{"turn":2,"ts":2.0,"data":2,"meta":{}}\n'
    return {b"": b"", b"whole": whole, b"torn": whole + b'{"turn":3,"ts":3.0,"da'}[name]


def test_a_reader_sees_each_record_of_the_process_that_writes(path: Path, writers: Writers) -> None:
    (other,) = writers(1)
    other.open(path)
    mine = Checkpointer(path)

    seen = []
    for number in range(5):
        other.save(number)
        record = mine.last_record
        seen.append(record and record.data)

    assert seen == [0, 1, 2, 3, 4]
    assert other.save("the last") == (6, 6)


def test_eight_processes_that_resume_at_once_have_one_winner_in_each_round(
    path: Path, writers: Writers
) -> None:
    rounds = 150 if FULL else 24
    crowd = writers(8)
    expected: dict[Path, list[Any]] = {}
    losses = {RunLockedError: 0, ConflictError: 0}

    for number in range(rounds):
        log = path.with_name(f"run-{number // 6}.jsonl")
        for writer in crowd:
            writer.ask("open", str(log), {})
        for writer in crowd:
            writer.answer()
        # In every second round the winner leaves as soon as it has saved.
        for place, writer in enumerate(crowd):
            writer.ask("save", [number, place])
            if number % 2:
                writer.ask("close")
        winners = []
        for place, writer in enumerate(crowd):
            try:
                writer.answer()
                winners.append(place)
            except (RunLockedError, ConflictError) as error:
                losses[type(error)] += 1
            if number % 2:
                writer.answer()
        assert len(winners) == 1
        expected.setdefault(log, []).append([number, winners[0]])
        for writer in crowd:
            writer.do("drop")

    assert {log: data_in(log) for log in expected} == expected
    assert sum(losses.values()) == 7 * rounds
    assert losses[RunLockedError] >= 7 * (rounds // 2)


def test_a_writer_that_is_killed_at_any_moment_leaves_a_run_that_goes_on(
    path: Path, writers: Writers
) -> None:
    acknowledged = 0

    for number in range(10 if FULL else 3):
        (other,) = writers(1)
        other.open(path)
        assert other.save(number) == (acknowledged + 1, acknowledged + 1)
        other.ask("save", number)  # it is killed while it does this, or before, or after
        other.kill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Checkpointer(path) as mine:
                acknowledged = mine.save("mine").seq

    assert acknowledged >= 6
    assert len(data_in(path)) == acknowledged


# -- one process --------------------------------------------------------------------------


@pytest.mark.parametrize("uses_with", [False, True])
def test_a_new_handle_takes_over_with_its_first_write_and_not_before(
    path: Path, uses_with: bool
) -> None:
    old = Checkpointer(path)
    old.save("old")

    new = Checkpointer(path)
    assert new.last_record is not None
    if uses_with:
        new.__enter__()
    old.save("still the old one's")
    assert new.last_record.data == "still the old one's"
    new.save("new")
    before = path.read_bytes()

    with pytest.raises(ConflictError) as conflict:
        old.save("too late")
    assert (conflict.value.expected, conflict.value.actual) == (2, 3)
    assert path.read_bytes() == before
    new.save("new again")
    assert data_in(path) == ["old", "still the old one's", "new", "new again"]


def test_a_new_handle_that_has_not_seen_the_newest_record_does_not_take_over(path: Path) -> None:
    old, new = Checkpointer(path), Checkpointer(path)
    old.save("old")

    with pytest.raises(ConflictError):
        new.save("new")

    old.save("old again")
    assert data_in(path) == ["old", "old again"]


def test_two_handles_alternate_by_reading_before_they_save(path: Path) -> None:
    handles = Checkpointer(path), Checkpointer(path)

    for number in range(20):
        handle = handles[number % 2]
        seen = handle.last_record if number % 4 < 2 else list(handle.records())[-1:]
        assert bool(seen) == bool(number)
        handle.save(number)

    assert data_in(path) == list(range(20))


def by_close(handles: list[Checkpointer]) -> None:
    handles.pop(0).close()


def by_leaving_a_block(handles: list[Checkpointer]) -> None:
    with handles.pop(0):
        pass


def by_forgetting(handles: list[Checkpointer]) -> None:
    gc.disable()  # the last reference is enough
    handles.pop(0)


def by_collecting_a_cycle(handles: list[Checkpointer]) -> None:
    cycle: list[Any] = [handles.pop(0)]
    cycle.append(cycle)
    del cycle
    gc.collect()


@pytest.fixture(autouse=True)
def _collects_garbage() -> Iterator[None]:
    yield
    gc.enable()


ends = pytest.mark.parametrize(
    "end", [by_close, by_leaving_a_block, by_forgetting, by_collecting_a_cycle]
)


@ends
def test_a_handle_that_ends_releases_the_run(
    path: Path, writers: Writers, end: Callable[[list[Checkpointer]], None]
) -> None:
    handles = [Checkpointer(path)]
    handles[0].save("mine")
    (other,) = writers(1)
    other.open(path)
    with pytest.raises(RunLockedError) as refusal:
        other.save("refused")
    assert refusal.value.pid == (os.getpid() if sys.platform == "linux" else None)

    end(handles)

    assert other.save("theirs") == (2, 2)


@ends
@pytest.mark.parametrize("new_one", ["has saved", "has entered"])
def test_the_end_of_the_old_handle_does_not_unlock_the_new_one(
    path: Path, writers: Writers, end: Callable[[list[Checkpointer]], None], new_one: str
) -> None:
    handles = [Checkpointer(path)]
    handles[0].save("old")
    new = Checkpointer(path)
    if new_one == "has saved":
        new.save("new")
    else:
        new.__enter__()
    (other,) = writers(1)
    other.open(path)

    end(handles)

    with pytest.raises(RunLockedError):
        other.save("refused")
    new.save("newest")
    new.close()
    other.last()
    other.save("theirs")


def test_closing_twice_releases_once(path: Path) -> None:
    old, new = Checkpointer(path), Checkpointer(path)
    old.save("old")
    new.__enter__()

    old.close()
    old.close()
    del old
    gc.collect()

    assert not is_free(path)


def test_other_opens_and_closes_of_the_file_do_not_lose_the_lock(
    path: Path, writers: Writers
) -> None:
    mine = Checkpointer(path)
    mine.save("mine")
    (other,) = writers(1)
    other.open(path)

    path.read_bytes()
    with path.open("ab"):
        pass
    with Checkpointer(path, readonly=True) as reader:
        list(reader.records())
    Checkpointer(path).verify()
    assert mine.last_record is not None

    with pytest.raises(RunLockedError):
        other.save("refused")


# -- the file is no longer at the path ----------------------------------------------------


@pytest.mark.parametrize("has", ["entered", "saved"])
@pytest.mark.parametrize("earlier", [0, 2])
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_of_two_owners_of_a_path_only_the_one_whose_file_is_there_may_write(
    path: Path, writers: Writers, fate: str, earlier: int, has: str
) -> None:
    fill(path, earlier)
    first, second = writers(2)
    first.open(path)
    if has == "entered":
        first.enter()
    else:
        first.save("first")

    if fate == "deleted":
        path.unlink()
    else:
        replace_by_copy(path)
    second.open(path)
    second.save("second")
    at_path = data_in(path)

    with pytest.raises(ConflictError) as refusal:
        first.save("into a file that nobody finds")
    assert isinstance(refusal.value, LogReplacedError)
    assert refusal.value.what == "replaced by another file"
    assert data_in(path) == at_path
    assert at_path[-1] == "second"


@pytest.mark.parametrize("has", ["read", "entered", "saved"])
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_no_save_is_acknowledged_into_a_file_that_is_not_at_the_path(
    path: Path, fate: str, has: str
) -> None:
    fill(path, 1)
    ckpt = Checkpointer(path)
    if has == "entered":
        ckpt.__enter__()
    elif has == "saved":
        ckpt.save("mine")
    before = data_in(path)
    if fate == "deleted":
        path.unlink()
    else:
        replace_by_copy(path)

    if fate == "replaced" and has == "read":
        ckpt.save("new")  # it had not been opened yet: the file at the path is as it was read
        assert data_in(path) == [*before, "new"]
        return
    with pytest.raises(LogReplacedError, match=f"{fate}.*Nothing was written"):
        ckpt.save("new")
    assert not path.exists() or data_in(path) == before


@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_handle_goes_on_with_what_is_at_the_path_once_it_has_read_it(
    path: Path, fate: str
) -> None:
    ckpt = Checkpointer(path)
    ckpt.save("one")
    if fate == "deleted":
        path.unlink()
    else:
        replace_by_copy(path)
    with pytest.raises(LogReplacedError):
        ckpt.save("refused")

    last = ckpt.last_record
    ckpt.save("two")

    assert (last is None) == (fate == "deleted")
    assert data_in(path) == (["two"] if fate == "deleted" else ["one", "two"])


@pytest.mark.parametrize("operation", ["flock", "pread", "fdatasync", "fsync"])
def test_a_file_replaced_while_the_first_save_gets_ready_is_noticed(
    path: Path, operation: str
) -> None:
    fill(path, 1)
    ckpt = Checkpointer(path)
    replaced: list[Call] = []

    def replace_before(call: Call) -> Any:
        if call.name == operation and not replaced:
            replaced.append(call)
            replace_by_copy(path)
        return call.do()

    with System(replace_before).installed():
        try:
            ckpt.save("mine")
            expected = [0, "mine"]
        except ConflictError:
            expected = [0]

    assert replaced
    assert data_in(path) == expected


def test_a_process_that_waits_for_a_file_that_is_replaced_gets_the_new_one(path: Path) -> None:
    path.write_bytes(b"")
    late = Checkpointer(path)
    fcntl_flock = fcntl.flock
    held: list[BinaryIO] = []

    def replace_before_the_lock(call: Call) -> Any:
        if call.name == "flock" and not held:
            replace_by_copy(path)
            held.append(path.open("rb"))
            fcntl_flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        return call.do()

    with System(replace_before_the_lock).installed(), pytest.raises(RunLockedError) as refusal:
        late.save("into the old file")

    assert refusal.value.pid == (os.getpid() if sys.platform == "linux" else None)
    assert path.read_bytes() == b""
    held[0].close()
    late.save("late")
    assert data_in(path) == ["late"]


def test_the_run_stays_locked_while_a_damaged_log_is_replaced(path: Path, writers: Writers) -> None:
    fill(path, 3)
    path.write_bytes(path.read_bytes().replace(b'"data":1', b'"data":9'))
    (other,) = writers(1)
    other.open(path, recover="prefix")
    others: list[Any] = []

    def let_the_other_try(call: Call) -> Any:
        try:
            others.append(other.save("theirs"))
        except RunLockedError as error:
            others.append(error.pid)
        return call.do()

    def try_after_the_lock(call: Call) -> Any:
        return call.do() if call.name == "flock" or not locked else let_the_other_try(call)

    locked: list[int] = []
    mine = Checkpointer(path, recover="prefix").__enter__()
    locked.append(1)
    with System(try_after_the_lock).installed(), pytest.warns(RecoveryWarning):
        mine.save("mine")

    assert len(others) > 5
    assert set(others) == {os.getpid() if sys.platform == "linux" else None}
    assert data_in(path) == [0, "mine"]
