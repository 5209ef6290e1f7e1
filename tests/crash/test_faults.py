"""Fail the n-th file operation, for n = 1, 2, 3 ... until the workload no longer gets that far.

Whatever the system refuses, and whenever: success or one of our errors, every acknowledged record
afterwards, none that was refused, and no descriptor left behind.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_checkpoint import (
    Checkpointer,
    CheckpointError,
    ConflictError,
    PoisonedError,
    StorageError,
    TornTailWarning,
    UnknownOutcomeError,
)
from tests.crash import shapes
from tests.crash.faults import (
    SYNCS,
    Call,
    Interrupt,
    Refuse,
    RefuseEach,
    ShortWrite,
    System,
    in_child,
    no_hang,
    open_descriptors,
)
from tests.crash.ledger import Ledger
from tests.logs import folder_in_memory

CODES = ("EIO", "ENOSPC", "EDQUOT", "EINTR", "EACCES", "EROFS", "EMFILE")
FULL = os.environ.get("CHECKPOINT_TESTS", "quick") == "full"

pytestmark = [
    pytest.mark.filterwarnings("ignore::agent_checkpoint.TornTailWarning"),
    pytest.mark.filterwarnings("ignore::agent_checkpoint.RecoveryWarning"),
]


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    with no_hang():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with folder_in_memory(tmp_path) as folder:
        yield folder


@contextmanager
def explained(where: str) -> Iterator[None]:
    try:
        yield
    except (AssertionError, CheckpointError, OSError) as problem:
        raise AssertionError(f"{where}: {problem}") from problem


# -- what is done while the system refuses ---------------------------------------------------


class Try(NamedTuple):
    """One run of a workload: where, how durable, and the notes on what came of it."""

    path: Path
    durability: str
    recover: str
    ledger: Ledger

    def open(self) -> Checkpointer:
        return Checkpointer(self.path, durability=self.durability, recover=self.recover)

    def save(self, run: Checkpointer, state: str) -> None:
        """Save *state*, and once more if it is refused."""
        if self.ledger.save(run, state) is None:
            self.ledger.save(run, f"{state}, again")

    def read(self, act: Callable[[], Any], expected: Any) -> None:
        """Whoever reads is told the truth, or that it cannot be told."""
        found = self.ledger.attempt(act)
        assert found == expected or isinstance(found, CheckpointError)


def saves(this: Try) -> None:
    """Resume, save three times, close."""
    run = this.ledger.attempt(this.open)
    if isinstance(run, CheckpointError):
        run = this.ledger.attempt(this.open)
    if isinstance(run, CheckpointError):
        return
    newest = this.ledger.kept[max(this.ledger.kept)] if this.ledger.kept else None
    this.read(lambda: run.last_record and run.last_record.data, newest)
    for number in range(3):
        this.save(run, f"new {number}")
    run.close()


def lives(this: Try) -> None:
    """Hold the run from the start, save, let go of it; twice."""
    for life in range(2):
        for _ in range(2):
            try:
                with this.open() as run:
                    this.save(run, f"life {life}")
                break
            except CheckpointError as error:
                this.ledger.errors.append(error)


def reads(this: Try) -> None:
    """Read in every way there is."""
    kept = this.ledger.kept
    run = this.ledger.attempt(this.open)
    if isinstance(run, CheckpointError):
        return
    this.read(lambda: [record.data for record in run.records()], list(kept.values()))
    this.read(lambda: {record.seq: record.data for record in run.records()}, kept)
    this.read(lambda: run.last_record and run.last_record.data, kept[max(kept)])
    this.read(lambda: run.at(1).data, kept[1])
    this.read(lambda: run.verify().records, len(kept))
    run.close()


def threads(this: Try) -> None:
    """Save from four threads at once."""
    run = this.ledger.attempt(this.open)
    if isinstance(run, CheckpointError):
        return
    this.ledger.attempt(lambda: run.last_record)
    problems: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(2):
                this.save(run, f"{name} {number}")
        except BaseException as problem:
            problems.append(problem)

    workers = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    run.close()
    assert problems == []


class Workload(NamedTuple):
    """What is done, on which log, and which of its records are kept."""

    act: Callable[[Try], None]
    log: bytes | None
    kept: tuple[int, ...] = (1, 2, 3)
    recover: str = "tail"


WORKLOADS = {
    "a new log in new folders": Workload(saves, None, ()),
    "a new log held by with": Workload(lives, None, ()),
    "a log that goes on": Workload(saves, shapes.WHOLE),
    "a log held by with": Workload(lives, shapes.WHOLE),
    "a log that is read": Workload(reads, shapes.WHOLE),
    "a log with half a line": Workload(saves, shapes.HALF_A_LINE),
    "a log with lost bytes": Workload(saves, shapes.LOST_BYTES),
    "a log without its last newline": Workload(saves, shapes.NO_LAST_NEWLINE),
    "a damaged log and prefix": Workload(saves, shapes.DAMAGED, (1,), "prefix"),
    "a damaged log and salvage": Workload(saves, shapes.DAMAGED, (1, 3), "salvage"),
    "four threads and a new log": Workload(threads, None, ()),
    "four threads and a torn log": Workload(threads, shapes.HALF_A_LINE),
}


def start(folder: Path, workload: Workload, durability: str) -> Try:
    """Lay out *workload*'s log in a fresh *folder*."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if workload.log is None:
        path = folder / "runs" / "today" / "run.jsonl"
    else:
        path = folder / "run.jsonl"
        path.write_bytes(workload.log)
    return Try(path, durability, workload.recover, Ledger(shapes.kept(*workload.kept)))


def left_open(folder: Path) -> list[str]:
    return [name for name in open_descriptors().values() if name.startswith(str(folder))]


def check_leftovers(workload: Workload, path: Path) -> None:
    """Beside the log is nothing but a damaged log's old bytes, and those are not lost."""
    beside = [name for name in path.parent.iterdir() if name != path]
    if workload.recover == "tail":
        assert beside == []
    else:
        assert {name.name.rstrip("0123456789") for name in beside} == {"run.jsonl.damaged-"}
        assert {name.read_bytes() for name in beside} == {shapes.DAMAGED}


def sweep(
    folder: Path, workload: Workload, code: str = "", *, lasting: tuple[bool, ...] = (False, True)
) -> Iterator[tuple[Try, Refuse, str]]:
    """Do *workload* with each of its operations refused; yield what came of it, each time.

    In quick mode the codes share the operations among them; without a *code* it is EIO for all.
    """
    numbers = (1, 1) if FULL or not code else (1 + CODES.index(code), len(CODES))
    for durability in ("sync", "flush"):
        for number in count(*numbers):
            reached = False
            for lasts in lasting:
                rule = Refuse(number, getattr(errno, code or "EIO"), lasting=lasts)
                this = start(folder / "x", workload, durability)
                with System(rule).installed():
                    workload.act(this)
                reached = reached or bool(rule.refused)
                how = "from there on" if lasts else "once"
                yield this, rule, f"{durability}, operation {number} {rule.refused[:1]} {how}"
            if not reached:
                break


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_whatever_the_system_refuses_no_acknowledged_record_is_lost(folder, name, code):
    workload = WORKLOADS[name]

    for this, rule, where in sweep(folder, workload, code):
        assert rule.refused or not this.ledger.errors, where
        this.ledger.forget_tracebacks()
        with explained(where):
            this.ledger.settle(this.path, recover=workload.recover)
            check_leftovers(workload, this.path)


@pytest.mark.parametrize(
    "name",
    WORKLOADS,
)
def test_a_refused_operation_leaves_no_descriptor_open(folder, name):
    # The errors are kept, as by a program that raises the last of them when it gives up.
    for _, _, where in sweep(folder, WORKLOADS[name]):
        assert left_open(folder) == [], where


ALONE = [name for name, workload in WORKLOADS.items() if workload.act is not threads]


@pytest.mark.parametrize(
    "name",
    ALONE,
)
def test_one_refused_operation_costs_one_call_and_a_refused_sync_the_handle(folder, name):
    for this, rule, where in sweep(folder, WORKLOADS[name], lasting=(False,)):
        errors = this.ledger.errors
        if SYNCS.intersection(rule.refused):
            assert [e for e in errors[1:] if not isinstance(e, PoisonedError)] == [], where
        else:
            assert errors[1:] == [], where


# -- half a write ------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "flush"])
def run(request, folder: Path) -> Iterator[Checkpointer]:
    """Yield a handle on a log of three records that has saved a fourth."""
    path = folder / "run.jsonl"
    path.write_bytes(shapes.WHOLE)
    with Checkpointer(path, durability=request.param) as run:
        run.save("fourth")
        yield run


def bytes_of(run: Checkpointer) -> bytes:
    return Path(run.path).read_bytes()


def states_of(run: Checkpointer) -> list[Any]:
    return [record.data for record in Checkpointer(run.path).records()]


def test_a_short_write_is_carried_on(run):
    for length in range(1, 60):
        with System(ShortWrite(1, length)).installed():
            run.save(length)

    assert states_of(run)[4:] == list(range(1, 60))


def test_a_write_is_carried_on_however_often_it_is_short(run):
    def a_byte_at_a_time(call: Call) -> Any:
        return call.write_only(1) if call.name == "write" else call.do()

    with System(a_byte_at_a_time).installed():
        run.save("in crumbs")

    assert states_of(run)[4:] == ["in crumbs"]


def test_a_write_that_takes_nothing_is_given_up(run):
    before = bytes_of(run)

    system = System(lambda call: 0 if call.name == "write" else call.do())
    with system.installed(), pytest.raises(StorageError) as caught:
        run.save("never")

    assert type(caught.value) is StorageError
    assert bytes_of(run) == before


@pytest.mark.parametrize("code", CODES)
def test_half_a_line_is_cut_off_before_the_error_is_raised(run, code):
    for length in range(60):
        before = bytes_of(run)

        system = System(ShortWrite(1, length, getattr(errno, code)))
        with system.installed(), pytest.raises(StorageError) as caught:
            run.save("never there")

        assert type(caught.value) is StorageError
        assert caught.value.errno == getattr(errno, code)
        assert bytes_of(run) == before
    run.save("fifth")
    assert states_of(run) == [*shapes.STATES, "fourth", "fifth"]


def test_half_a_line_that_cannot_be_cut_off_is_said_to_be_unknown(run):
    def no_room(call: Call) -> Any:
        if call.name == "write":
            return call.write_only(20) if len(call.args[1]) > 40 else refuse(errno.ENOSPC)
        return refuse(errno.EIO) if call.name == "ftruncate" else call.do()

    def refuse(code: int) -> None:
        raise OSError(code, os.strerror(code))

    with System(no_room).installed():
        with pytest.raises(UnknownOutcomeError) as caught:
            run.save("x" * 40)
        with pytest.raises(PoisonedError):
            run.save("never")

    assert caught.value.errno == errno.ENOSPC
    with pytest.warns(TornTailWarning), Checkpointer(run.path) as again:
        again.save("fifth")
    assert states_of(run)[4:] == ["fifth"]


# -- a sync that failed ------------------------------------------------------------------------


@pytest.fixture
def synced(folder: Path) -> Iterator[Checkpointer]:
    path = folder / "run.jsonl"
    path.write_bytes(shapes.WHOLE)
    with Checkpointer(path) as run:
        run.save("fourth")
        yield run


@pytest.mark.parametrize("code", CODES)
def test_after_a_failed_sync_the_next_one_is_not_believed(synced, code):
    before = bytes_of(synced)

    with System(RefuseEach("fdatasync", getattr(errno, code), times=1)).installed() as system:
        with pytest.raises(UnknownOutcomeError) as caught:
            synced.save("who knows")
        after = bytes_of(synced)
        names = len(system.names)
        for _ in range(3):
            with pytest.raises(PoisonedError):
                synced.save("never")

    assert caught.value.errno == getattr(errno, code)
    assert after == before, "the file was not cut back at once"
    assert not {"write", "ftruncate", *SYNCS}.intersection(system.names[names:])
    with Checkpointer(synced.path) as again:
        again.save("fifth")
    assert states_of(synced) == [*shapes.STATES, "fourth", "fifth"]


def test_a_sync_that_fails_in_the_cutting_back_makes_the_outcome_unknown(synced):
    def failing(call: Call) -> Any:
        if call.name == "write":
            return call.write_only(5) if len(call.args[1]) > 60 else refuse()
        return refuse() if call.name == "fdatasync" else call.do()

    def refuse() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with System(failing).installed(), pytest.raises(UnknownOutcomeError):
        synced.save("x" * 60)
    with pytest.raises(PoisonedError):
        synced.save("never")

    assert states_of(synced) == [*shapes.STATES, "fourth"]


@pytest.mark.parametrize("content", [shapes.HALF_A_LINE, shapes.NO_LAST_NEWLINE, shapes.WHOLE])
def test_after_a_sync_that_failed_in_mending_the_handle_refuses(folder, content):
    path = folder / "run.jsonl"
    path.write_bytes(content)
    run = Checkpointer(path)

    with System(RefuseEach("fdatasync", errno.EIO, times=1)).installed():
        with pytest.raises(StorageError):
            run.save("never")
        with pytest.raises(PoisonedError):
            run.save("never")

    with Checkpointer(path) as again:
        again.save("fourth")
    assert states_of(again) == [*shapes.STATES, "fourth"]


def test_after_a_failed_sync_every_handle_of_the_process_reads_the_log_anew(synced):
    other = Checkpointer(synced.path)

    system = System(RefuseEach("fdatasync", errno.EIO, times=1))
    with system.installed(), pytest.raises(UnknownOutcomeError):
        synced.save("who knows")
    other.save("fifth")
    other.close()

    assert states_of(synced) == [*shapes.STATES, "fourth", "fifth"]


# -- Ctrl-C ------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "within", "after"])
@pytest.mark.parametrize("durability", ["sync", "flush"])
@pytest.mark.parametrize(
    "content",
    [None, shapes.WHOLE, shapes.HALF_A_LINE, shapes.NO_LAST_NEWLINE],
    ids=["no log", "a whole log", "half a line", "no last newline"],
)
def test_after_an_interrupt_at_any_operation_the_same_handle_goes_on(
    folder, content, durability, when
):
    kept = [] if content is None else list(shapes.STATES)
    for number in count(1):
        path = folder / str(number) / "run.jsonl"
        if content is not None:
            path.parent.mkdir()
            path.write_bytes(content)
        run = Checkpointer(path, durability=durability)
        rule = Interrupt(number, when)

        with System(rule).installed():
            try:
                for state in ("first", "second"):
                    run.save(state)
            except KeyboardInterrupt:
                pass
        run.save("and so on")
        run.close()

        states = states_of(run)
        rest = states[len(kept) :]
        assert states[: len(kept)] == kept
        assert rest in ([*saved, "and so on"] for saved in ([], ["first"], ["first", "second"])), (
            f"{rule.interrupted}, operation {number}: {rest}"
        )
        if rule.interrupted not in ("open", ""):  # what open returned nobody has heard of
            assert left_open(path.parent) == [], f"{rule.interrupted}, operation {number}"
        if not rule.interrupted:
            break


@pytest.mark.parametrize(
    "when",
    ["before", "within", "after"],
)
@pytest.mark.parametrize("recover", ["prefix", "salvage"])
def test_an_interrupt_in_mending_loses_neither_log_nor_the_damaged_bytes(folder, recover, when):
    kept = [
        state for n, state in enumerate(shapes.STATES) if n == 0 or (n == 2 and recover[0] == "s")
    ]
    for number in count(1):
        path = folder / str(number) / "run.jsonl"
        path.parent.mkdir()
        path.write_bytes(shapes.DAMAGED)
        rule = Interrupt(number, when)

        with System(rule).installed():
            try:
                with Checkpointer(path, recover=recover) as run:
                    run.save("first")
            except KeyboardInterrupt:
                pass

        where = f"{rule.interrupted}, operation {number}"
        contents = [beside.read_bytes() for beside in path.parent.iterdir()]
        assert shapes.DAMAGED in contents, where
        with Checkpointer(path, recover=recover) as again:
            again.save("and so on")
        states = states_of(again)
        assert states in ([*kept, "and so on"], [*kept, "first", "and so on"]), where
        if not rule.interrupted:
            break


# -- one at a time -----------------------------------------------------------------------------


def test_a_log_that_cannot_be_read_is_not_opened(folder):
    path = folder / "run.jsonl"
    path.write_bytes(shapes.WHOLE)

    system = System(RefuseEach("pread", errno.EIO, times=1))
    with system.installed(), pytest.raises(StorageError, match="could not read"):
        Checkpointer(path)


def test_a_log_that_was_damaged_when_it_was_opened_is_not_written_to_unread(folder):
    path = folder / "run.jsonl"
    path.write_bytes(shapes.WHOLE.replace(b'"three"', b'"threx"'))
    run = Checkpointer(path)
    path.write_bytes(shapes.WHOLE)  # restored from a copy

    with pytest.raises(ConflictError):
        run.save("never")
    assert run.last_record.seq == 3
    run.save("fourth")
    run.close()

    assert states_of(run) == [*shapes.STATES, "fourth"]


@pytest.mark.parametrize("code", ["EMFILE", "EINTR"])
def test_a_folder_that_could_not_be_opened_once_costs_one_save(folder, code):
    run = Checkpointer(folder / "run.jsonl")

    def no_folder(call: Call) -> Any:
        if call.name == "open" and call.args[0] == str(folder):
            raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))
        return call.do()

    with System(no_folder).installed(), pytest.raises(StorageError):
        run.save("never")
    run.save("first")
    run.close()

    assert states_of(run) == ["first"]


@pytest.mark.parametrize("name", ["a log that goes on", "a damaged log and prefix"])
def test_a_program_that_gives_up_after_a_refusal_leaves_the_run_to_others(folder, name):
    workload = WORKLOADS[name]
    for this, _, where in sweep(folder, workload, lasting=(False,)):
        code = in_child(partial(save_in, this.path, workload.recover))

        assert code == 0, where


def test_after_a_mending_that_could_not_sync_the_folder_there_is_no_conflict(folder):
    path = folder / "run.jsonl"
    path.write_bytes(shapes.DAMAGED)
    run = Checkpointer(path, recover="salvage")
    with System(RefuseEach("fsync", errno.EIO, times=1)).installed():
        Ledger().save(run, "never")
    ledger = Ledger()

    ledger.save(run, "next")
    run.close()

    assert [error for error in ledger.errors if not isinstance(error, PoisonedError)] == []


def save_in(path: Path, recover: str) -> None:
    with Checkpointer(path, recover=recover) as run:
        run.save("by another")


def test_closing_while_another_thread_writes_does_not_lead_its_bytes_elsewhere(synced, folder):
    foreign = folder / "foreign"
    taken: list[int] = []

    def close_and_take_its_number() -> None:
        synced.close()
        taken.append(os.open(foreign, os.O_RDWR | os.O_CREAT))

    closing = threading.Thread(target=close_and_take_its_number)

    def close_meanwhile(call: Call) -> Any:
        if call.name == "write":
            closing.start()
            closing.join(timeout=0.5)  # it has to wait until this write is over
        return call.do()

    with System(close_meanwhile).installed():
        synced.save("fifth")
    closing.join()
    os.close(taken[0])

    assert foreign.read_bytes() == b""
    assert states_of(synced)[4:] == ["fifth"]
