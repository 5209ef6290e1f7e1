"""Threads share a handle, and a sync; each save is on its own."""

from __future__ import annotations

import errno
import gc
import json
import os
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import (
    Checkpointer,
    ClosedError,
    ConflictError,
    PoisonedError,
    Record,
    StorageError,
    UnknownOutcomeError,
    UnstorableError,
)
from tests.concurrency.actors import Child, Crew, is_free
from tests.crash.faults import SYNCS, Call, System

FULL = os.environ.get("CHECKPOINT_TESTS", "quick") == "full"
THREADS = 32
SAVES = 60 if FULL else 15

durabilities = pytest.mark.parametrize("durability", ["sync", "flush"])


def saves_of(ckpt: Checkpointer, thread: int, saves: int = SAVES) -> Callable[[], list[Record]]:
    """Return what a thread does: save [thread, 0], [thread, 1] ... and return the records."""
    return lambda: [ckpt.save([thread, number]) for number in range(saves)]


def records_in(path: Path) -> list[Record]:
    """Return the records of the log, whose seqs have no gap."""
    records = list(Checkpointer(path, readonly=True).records())
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    return records


class Struck:
    """A rule that answers one write or sync of more than one record in its own way.

    Each thread of the test saves until that has happened, so that it always does.
    """

    def __init__(self, name: str, answer: Callable[[Call], Any]) -> None:
        self.name, self.answer = name, answer
        self.batch: list[Any] = []  # the states in the write that was struck, or whose sync was
        self.happened = threading.Event()
        self._written: list[Any] = []

    def __call__(self, call: Call) -> Any:
        if call.name == "write":
            self._written = [json.loads(line)["data"] for line in bytes(call.args[1]).splitlines()]
        if call.name != self.name or len(self._written) < 2 or self.happened.is_set():
            return call.do()
        self.batch = self._written
        self.happened.set()
        return self.answer(call)

    def saves_until_it_happened(
        self, ckpt: Checkpointer, thread: int
    ) -> Callable[[], tuple[list[Any], list[tuple[Any, BaseException]]]]:
        """Return what a thread does: save until it happened, and then once more."""

        def act() -> tuple[list[Any], list[tuple[Any, BaseException]]]:
            saved: list[Any] = []
            refused: list[tuple[Any, BaseException]] = []
            for number in count():
                is_last = self.happened.is_set()
                try:
                    saved.append(ckpt.save([thread, number]).data)
                except BaseException as error:
                    refused.append(([thread, number], error))
                if is_last:
                    return saved, refused
            raise AssertionError

        return act


# -- all is well --------------------------------------------------------------------------


@durabilities
def test_all_saves_of_many_threads_are_stored_each_with_a_number_of_its_own(
    path: Path, durability: str
) -> None:
    ckpt = Checkpointer(path, durability=durability)

    saved = Crew([saves_of(ckpt, thread) for thread in range(THREADS)]).all_results()

    stored = records_in(path)
    by_seq = {record.seq: record for records in saved for record in records}
    assert [by_seq[seq] for seq in range(1, THREADS * SAVES + 1)] == stored
    assert [record.turn for record in stored] == list(range(1, THREADS * SAVES + 1))
    assert Checkpointer(path).verify().ok


def test_each_thread_finds_its_own_saves_in_its_own_order(path: Path) -> None:
    ckpt = Checkpointer(path)

    Crew([saves_of(ckpt, thread) for thread in range(THREADS)]).all_results()

    order: dict[int, list[int]] = {}
    for record in records_in(path):
        order.setdefault(record.data[0], []).append(record.data[1])
    assert order == {thread: list(range(SAVES)) for thread in range(THREADS)}


def test_a_save_returns_only_when_its_own_bytes_are_synced(path: Path) -> None:
    ckpt = Checkpointer(path)
    synced = 0
    batches = []
    returned: list[tuple[int, int]] = []

    def note_what_is_synced(call: Call) -> Any:
        nonlocal synced
        if call.name == "write":
            batches.append(bytes(call.args[1]).count(b"\n"))
        if call.name not in SYNCS:
            return call.do()
        size = os.fstat(call.args[0]).st_size
        done = call.do()
        if path.exists() and os.path.samestat(os.fstat(call.args[0]), path.stat()):
            synced = size
        return done

    def act(thread: int) -> None:
        for number in range(SAVES):
            seq = ckpt.save([thread, number]).seq
            returned.append((seq, synced))

    with System(note_what_is_synced).installed():
        Crew([partial(act, thread) for thread in range(THREADS)]).all_results()

    ends = {}
    end = 0
    for seq, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        ends[seq] = end = end + len(line)
    assert sorted(seq for seq, _ in returned) == sorted(ends)
    assert [seq for seq, synced_by_then in returned if synced_by_then < ends[seq]] == []
    assert max(batches) > 1


def test_threads_that_meet_share_a_sync(path: Path) -> None:
    ckpt = Checkpointer(path)
    system = System()

    with system.installed():
        Crew([saves_of(ckpt, thread) for thread in range(THREADS)]).all_results()

    assert len(records_in(path)) == THREADS * SAVES
    assert system.names.count("fdatasync") <= THREADS * SAVES // 2


def test_explicit_and_automatic_turns_of_threads_are_all_kept(path: Path) -> None:
    ckpt = Checkpointer(path)

    def act(thread: int) -> list[Record]:
        return [ckpt.save(thread, turn=thread if n % 2 else None) for n in range(SAVES)]

    saved = Crew([partial(act, thread) for thread in range(8)]).all_results()

    stored = records_in(path)
    assert sorted((r for records in saved for r in records), key=lambda r: r.seq) == stored
    turns = [0, *(record.turn for record in stored)]
    assert all(after in (before + 1, r.data) for before, after, r in zip(turns, turns[1:], stored))


def test_threads_that_read_meanwhile_see_a_log_that_only_grows(path: Path) -> None:
    ckpt = Checkpointer(path)
    ckpt.save([0, 0])

    def read() -> bool:
        seen = 0
        for _ in range(SAVES):
            record = ckpt.last_record
            assert record is not None
            assert record.seq >= seen
            seen = record.seq
            assert [r.seq for r in ckpt.records()][:seen] == list(range(1, seen + 1))
        return True

    acts = [saves_of(ckpt, thread) for thread in range(4)]
    results = Crew([*acts, read, read]).all_results()

    assert results[4:] == [True, True]
    assert len(records_in(path)) == 1 + 4 * SAVES


def test_handles_of_one_process_in_threads_take_turns_by_reading(path: Path) -> None:
    def act(thread: int) -> list[int]:
        ckpt = Checkpointer(path)
        seqs: list[int] = []
        while len(seqs) < SAVES:
            try:
                seqs.append(ckpt.save([thread, len(seqs)]).seq)
            except ConflictError:
                assert ckpt.last_record is not None
        ckpt.close()
        return seqs

    results = Crew([partial(act, thread) for thread in range(4)]).all_results()

    stored = {record.seq: record.data for record in records_in(path)}
    assert {
        seq: [thread, number]
        for thread, seqs in enumerate(results)
        for number, seq in enumerate(seqs)
    } == stored
    assert is_free(path)


def test_handles_on_many_logs_in_threads_do_not_meet(tmp_path: Path) -> None:
    def act(thread: int) -> bool:
        for number in range(SAVES):
            with Checkpointer(tmp_path / f"{thread}.jsonl") as ckpt:
                assert ckpt.save([thread, number]).seq == number + 1
        return is_free(tmp_path / f"{thread}.jsonl")

    assert Crew([partial(act, thread) for thread in range(8)]).all_results() == [True] * 8


# -- one of them fails --------------------------------------------------------------------


def test_a_write_that_fails_is_an_error_of_each_save_in_it_and_of_no_other(path: Path) -> None:
    def write_half(call: Call) -> Any:
        call.write_only(len(call.args[1]) // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ckpt = Checkpointer(path)
    strike = Struck("write", write_half)

    with System(strike).installed():
        acts = [strike.saves_until_it_happened(ckpt, thread) for thread in range(THREADS)]
        results = Crew(acts).all_results()

    refused = [pair for _, pairs in results for pair in pairs]
    saved = [data for each, _ in results for data in each]
    errors = [error for _, error in refused]
    assert len(strike.batch) > 1
    assert sorted(data for data, _ in refused) == sorted(strike.batch)
    assert {type(error) for error in errors} == {StorageError}
    assert {getattr(error, "errno", 0) for error in errors} == {errno.ENOSPC}
    assert sorted(record.data for record in records_in(path)) == sorted(saved)
    assert ckpt.save("after").seq == len(saved) + 1


def test_each_thread_raises_an_error_of_its_own(path: Path) -> None:
    def refuse(call: Call) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    ckpt = Checkpointer(path)
    strike = Struck("write", refuse)

    with System(strike).installed():
        acts = [strike.saves_until_it_happened(ckpt, thread) for thread in range(THREADS)]
        results = Crew(acts).all_results()

    errors = [error for _, pairs in results for _, error in pairs]
    assert len(errors) > 1
    assert len({id(error) for error in errors}) == len(errors)
    assert len({id(error.__traceback__) for error in errors}) == len(errors)
    assert len({str(error) for error in errors}) == 1
    assert all(isinstance(error.__cause__, OSError) for error in errors)


def test_a_sync_that_fails_is_an_unknown_outcome_of_each_save_in_it_and_ends_the_handle(
    path: Path,
) -> None:
    def refuse(call: Call) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    ckpt = Checkpointer(path)
    strike = Struck("fdatasync", refuse)

    with System(strike).installed():
        acts = [strike.saves_until_it_happened(ckpt, thread) for thread in range(THREADS)]
        results = Crew(acts).all_results()

    refused = [pair for _, pairs in results for pair in pairs]
    saved = [data for each, _ in results for data in each]
    unknown = [data for data, error in refused if isinstance(error, UnknownOutcomeError)]
    assert sorted(unknown) == sorted(strike.batch)
    assert {type(error) for _, error in refused} <= {UnknownOutcomeError, PoisonedError}
    assert sorted(record.data for record in records_in(path)) == sorted(saved)
    assert is_free(path)


def test_a_value_that_has_no_place_in_a_log_is_an_error_of_its_own_thread_only(path: Path) -> None:
    ckpt = Checkpointer(path)

    def act(thread: int) -> int:
        refused = 0
        for number in range(SAVES):
            try:
                ckpt.save({thread} if thread % 4 == 0 else [thread, number])
            except UnstorableError:
                refused += 1
        return refused

    refused = Crew([partial(act, thread) for thread in range(THREADS)]).all_results()

    assert refused == [SAVES if thread % 4 == 0 else 0 for thread in range(THREADS)]
    assert sorted(record.data for record in records_in(path)) == [
        [thread, number] for thread in range(THREADS) if thread % 4 for number in range(SAVES)
    ]


@durabilities
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", ["write", "fdatasync"])
def test_an_interrupt_in_the_thread_that_writes_hurts_no_save_of_another_thread(
    path: Path, operation: str, when: str, durability: str
) -> None:
    if operation == "fdatasync" and durability == "flush":
        pytest.skip("nothing is synced")

    def interrupt(call: Call) -> Any:
        if when == "after":
            call.do()
        raise KeyboardInterrupt

    ckpt = Checkpointer(path, durability=durability)
    strike = Struck(operation, interrupt)

    with System(strike).installed():
        acts = [strike.saves_until_it_happened(ckpt, thread) for thread in range(THREADS)]
        results = Crew(acts).all_results()

    refused = [pair for _, pairs in results for pair in pairs]
    saved = [data for each, _ in results for data in each]
    assert [type(error) for _, error in refused] == [KeyboardInterrupt]
    assert refused[0][0] in strike.batch
    assert sorted(record.data for record in records_in(path)) == sorted(saved)
    ckpt.close()
    assert is_free(path)


# -- the end of a handle ------------------------------------------------------------------


@durabilities
def test_a_save_that_meets_a_close_is_stored_or_refused(tmp_path: Path, durability: str) -> None:
    def save_until_closed(ckpt: Checkpointer, thread: int, begun: threading.Event) -> list[Any]:
        saved: list[Any] = []
        while True:
            try:
                saved.append(ckpt.save([thread, len(saved)]).data)
            except ClosedError:
                return saved
            begun.set()

    for number in range(100 if FULL else 20):
        path = tmp_path / f"{number}.jsonl"
        ckpt = Checkpointer(path, durability=durability)
        begun = threading.Event()

        crew = Crew([partial(save_until_closed, ckpt, thread, begun) for thread in range(8)])
        if number % 2:
            begun.wait()
        ckpt.close()
        saved = [data for each in crew.all_results() for data in each]

        assert sorted(record.data for record in records_in(path)) == sorted(saved)
        assert not path.exists() or is_free(path)


@pytest.mark.parametrize("has", ["read", "entered", "saved"])
def test_a_close_at_any_moment_of_a_save_leaves_it_stored_or_refused_and_the_run_free(
    tmp_path: Path, has: str
) -> None:
    ways = set()

    for moment in count(1):
        path = tmp_path / f"{moment}.jsonl"
        ckpt = Checkpointer(path)
        if has == "entered":
            ckpt.__enter__()
        elif has == "saved":
            ckpt.save("earlier")
        closer = threading.Thread(target=ckpt.close, daemon=True)

        def close_meanwhile(
            call: Call, moment: int = moment, closer: threading.Thread = closer
        ) -> Any:
            if call.number == moment and not closer.ident:
                closer.start()
                closer.join(0.02)  # it may have to wait for this save; then it has begun at least
            return call.do()

        with System(close_meanwhile).installed():
            (error,) = Crew([partial(ckpt.save, "mine")]).join().errors
        if not closer.ident:
            break
        closer.join(60)
        ways.add(type(error))

        stored = [record.data for record in records_in(path)]
        assert isinstance(error, (ClosedError, type(None))), (moment, error)
        assert (stored[-1:] == ["mine"]) == (error is None), moment
        assert not path.exists() or is_free(path), moment

    assert type(None) in ways


def test_a_forgotten_handle_may_be_collected_while_another_is_opened(
    tmp_path: Path, child: Callable[[Callable[[], Any]], Child]
) -> None:
    def open_while_collecting(moment: int) -> bool:
        gc.freeze()
        forgotten = tmp_path / f"{moment}-forgotten.jsonl"
        cycle: list[Any] = [Checkpointer(forgotten)]
        cycle[0].save("mine")
        cycle.append(cycle)
        happened = []

        def collect(call: Call) -> Any:
            if call.number == moment:
                happened.append(gc.collect())
            return call.do()

        del cycle
        other = Checkpointer(tmp_path / "other.jsonl")
        with System(collect).installed():
            other.save(moment)
        other.close()
        assert is_free(tmp_path / "other.jsonl")
        assert not happened or is_free(forgotten)
        return bool(happened)

    for moment in count(1):
        if not child(partial(open_while_collecting, moment)).result():
            break

    assert [record.data for record in records_in(tmp_path / "other.jsonl")] == [
        *range(1, moment + 1)
    ]
    assert moment > 5


def test_a_forgotten_handle_may_be_collected_while_another_of_the_same_log_gives_up(
    tmp_path: Path, child: Callable[[Callable[[], Any]], Child]
) -> None:
    path = tmp_path / "run.jsonl"

    def give_up_while_collecting() -> list[str]:
        cycle: list[Any] = [Checkpointer(path)]
        cycle[0].save("old")
        cycle.append(cycle)
        del cycle
        ckpt, other = Checkpointer(path), Checkpointer(tmp_path / "other.jsonl")
        ckpt.save("new")
        in_sync, in_lock = threading.Event(), threading.Event()

        def meet(call: Call) -> Any:
            if call.name == "fdatasync" and not in_sync.is_set():
                in_sync.set()
                in_lock.wait()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if call.name == "flock" and not in_lock.is_set():
                in_sync.wait()
                in_lock.set()
                gc.collect()
            return call.do()

        with System(meet).installed():
            crew = Crew([partial(ckpt.save, "lost"), partial(other.save, "kept")]).join()
        return [type(error).__name__ for error in crew.errors]

    assert child(give_up_while_collecting).result() == ["UnknownOutcomeError", "NoneType"]
    assert is_free(path)
