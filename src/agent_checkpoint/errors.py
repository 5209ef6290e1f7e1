"""Every error of this package. ``str(error)`` says what is true, what happened to the data,
and what to do next; the facts are attributes.

CheckpointError
├── ArgumentError (ValueError)        an argument that cannot be meant
│   ├── UnstorableError               a value that has no place in a JSON line
│   └── RecordTooLargeError           a record longer than a line may be
├── PathError                         the path is a folder, a link, a pipe
├── HandleError                       this handle may not write
│   ├── ClosedError                   it was closed
│   ├── NotCopyableError              it is one program's hold on a run, not a value
│   ├── ReadOnlyError                 it was opened with readonly=True
│   ├── ForkedError                   it belongs to the process that opened it
│   ├── ReentrantSaveError            it is in the middle of a save, in this thread
│   └── PoisonedError                 a sync failed, and its word is not taken again
├── RunLockedError                    another process holds the run
├── ConflictError                     the log has grown since this handle read it
│   └── LogReplacedError              the log was deleted, replaced or cut under this handle
├── RecordNotFoundError (LookupError) no record of that turn or seq
├── CorruptLogError                   bytes that were written whole have changed since
│   └── NotALogError                  the file was never a log
├── ReaderLimitError                  a record is beyond a limit of this process
├── NewerFormatError                  the log was written by a newer release
└── StorageError                      the operating system refused; nothing was stored
    └── UnknownOutcomeError           it refused too late to know

TornTailWarning (UserWarning)         half a line, left by a crash, was dropped
RecoveryWarning (UserWarning)         a damaged log was replaced by what recover= keeps
"""

from __future__ import annotations


class CheckpointError(Exception):
    """The base of every error that this package raises."""


class ArgumentError(CheckpointError, ValueError):
    """An argument that cannot be meant. Nothing was written."""

    def __init__(self, name: str, value: str, wanted: str) -> None:
        super().__init__(name, value, wanted)
        self.name, self.value, self.wanted = name, value, wanted

    def __str__(self) -> str:
        return f"{self.name} is {self.value}; it has to be {self.wanted}. Nothing was written."


class UnstorableError(ArgumentError):
    """A value that has no place in a JSON line. Nothing was written."""

    def __init__(self, path: str, value: str, reason: str, way_out: str) -> None:
        super().__init__(path, value, way_out)
        self.path, self.reason, self.way_out = path, reason, way_out
        self.args = (path, value, reason, way_out)

    def __str__(self) -> str:
        return f"{self.path} is {self.value}: {self.reason}. Nothing was written. {self.way_out}"


class RecordTooLargeError(ArgumentError):
    """A record longer than a line may be. Nothing was written."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__("data", f"{size} bytes of JSON", f"at most {limit}")
        self.size, self.limit = size, limit
        self.args = (size, limit)

    def __str__(self) -> str:
        return (
            f"this record has {self.size} bytes of JSON; a line has room for"
            f" {self.limit}. Nothing was written. Keep what is large in a file of its own and"
            " save its name."
        )


class PathError(CheckpointError):
    """The path is there, but it is not a regular file. Nothing was changed."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(path, kind)
        self.path, self.kind = path, kind

    def __str__(self) -> str:
        if self.kind == "a folder":
            advice = "Name a file in it, such as run.jsonl."
        else:
            advice = "Name the log file itself."
        return (
            f"{self.path!r} is {self.kind}; a log is a regular file. Nothing was changed. {advice}"
        )


class HandleError(CheckpointError):
    """This handle may not write. Nothing was written."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ClosedError(HandleError):
    """The handle was closed."""

    def __str__(self) -> str:
        return (
            f"this handle on {self.path!r} is closed. Nothing was written."
            " Open the run again with Checkpointer(path)."
        )


class NotCopyableError(HandleError):
    """A handle was copied or pickled."""

    def __str__(self) -> str:
        return (
            f"this handle on {self.path!r} cannot be copied or pickled: it holds a lock."
            " Nothing was changed. Open the path again with Checkpointer(path)."
        )


class ReadOnlyError(HandleError):
    """The handle was opened with ``readonly=True``."""

    def __str__(self) -> str:
        return (
            f"{self.path!r} was opened with readonly=True. Nothing was written."
            " Open it without readonly to save."
        )


class ForkedError(HandleError):
    """The handle belongs to the process that opened it, and this is a forked child."""

    def __init__(self, path: str, opened_by: int, pid: int) -> None:
        super().__init__(path)
        self.opened_by, self.pid = opened_by, pid
        self.args = (path, opened_by, pid)

    def __str__(self) -> str:
        return (
            f"this handle on {self.path!r} was opened by process {self.opened_by}; this is its"
            f" forked child {self.pid}. Nothing was written. Give the child a log of its own, or"
            " open this one in the child after the parent has closed it."
        )


class ReentrantSaveError(HandleError):
    """A signal handler called ``save()`` in the middle of a ``save()`` of the same thread."""

    def __str__(self) -> str:
        return (
            f"this thread is in the middle of a save to {self.path!r}, which a signal handler"
            " interrupted. Nothing of the handler's save was written; the other one goes on when"
            " the handler returns. Let the handler set a flag, and save when the loop sees it."
        )


class PoisonedError(HandleError):
    """An earlier sync of this handle failed, so nothing more is written through it."""

    def __str__(self) -> str:
        return (
            f"an earlier write to {self.path!r} could not be made durable, and what the system"
            " says of this file since then cannot be believed. Nothing was written."
            " Look after the disk, then open the run again: it goes on from its last record."
        )


class RunLockedError(CheckpointError):
    """Another process holds the run. Nothing was written."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path, self.pid = path, pid

    def __str__(self) -> str:
        holder = "another process" if self.pid is None else f"process {self.pid}"
        return (
            f"{holder} is writing to {self.path!r}, and a run has one writer. Nothing was written."
            " Wait until it has ended, or save to a log of your own."
        )


class ConflictError(CheckpointError):
    """The log has grown since this handle last read it. Nothing was written."""

    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(path, expected, actual)
        self.path, self.expected, self.actual = path, expected, actual

    def __str__(self) -> str:
        return (
            f"{self.path!r} ends with record {self.actual}, and this handle last read record"
            f" {self.expected}: another writer got there first. Nothing was written."
            " Open the run again to go on from its last record."
        )


class LogReplacedError(ConflictError):
    """The log was deleted, replaced or cut under this handle. Nothing was written."""

    def __init__(self, path: str, expected: int, actual: int, what: str) -> None:
        super().__init__(path, expected, actual)
        self.what = what
        self.args = (path, expected, actual, what)

    def __str__(self) -> str:
        return (
            f"{self.path!r} was {self.what} while this handle had it open (it had read up to"
            f" record {self.expected}). Nothing was written. Put the log back, or open the path"
            " again to go on with what is there now."
        )


class RecordNotFoundError(CheckpointError, LookupError):
    """The log has no record of that turn or seq."""

    def __init__(self, path: str, what: str, number: int) -> None:
        super().__init__(path, what, number)
        self.path, self.what, self.number = path, what, number

    def __str__(self) -> str:
        return (
            f"{self.path!r} has no record of {self.what} {self.number}. Nothing was changed."
            " records() shows what there is."
        )


class CorruptLogError(CheckpointError):
    """Bytes that were once written whole have changed. The log was left as it is."""

    def __init__(self, path: str, offset: int, seq: int, reason: str) -> None:
        super().__init__(path, offset, seq, reason)
        self.path, self.offset, self.seq, self.reason = path, offset, seq, reason

    def __str__(self) -> str:
        return (
            f"{self.path!r} is damaged at byte {self.offset}, where record {self.seq} was"
            f" expected: {self.reason}. The file was left as it is."
            " Restore it from a copy, or open it with recover='prefix' to go on from the records"
            " before the damage, or recover='salvage' to keep every record that is whole."
        )


class NotALogError(CorruptLogError):
    """The file was never a checkpoint log. It was left as it is."""

    def __str__(self) -> str:
        return (
            f"{self.path!r} does not look like a checkpoint log: {self.reason}."
            " The file was left as it is. Name another path."
        )


class ReaderLimitError(CheckpointError):
    """A limit of this process keeps a record from being read. The log was left as it is."""

    def __init__(self, path: str, seq: int, reason: str) -> None:
        super().__init__(path, seq, reason)
        self.path, self.seq, self.reason = path, seq, reason

    def __str__(self) -> str:
        return (
            f"record {self.seq} of {self.path!r} is beyond what this process reads: {self.reason}."
            " Nothing was changed. Raise the limit and read it again, or read it with a Python that"
            " has a higher one."
        )


class NewerFormatError(CheckpointError):
    """The log was written in a newer format than this release reads. It was left as it is."""

    def __init__(self, path: str, offset: int, version: int, supported: int) -> None:
        super().__init__(path, offset, version, supported)
        self.path, self.offset = path, offset
        self.version, self.supported = version, supported

    def __str__(self) -> str:
        return (
            f"{self.path!r} has a record of format {self.version} at byte {self.offset}; this"
            f" release reads formats up to {self.supported}. The file was left as it is."
            " Upgrade agent-checkpoint. If no newer release ever wrote to it, these bytes have"
            " changed: restore it from a copy."
        )


class StorageError(CheckpointError):
    """The operating system refused. Nothing of this call was stored."""

    def __init__(self, path: str, doing: str, errno: int | None, words: str) -> None:
        super().__init__(path, doing, errno, words)
        self.path, self.doing, self.errno, self.words = path, doing, errno, words

    @classmethod
    def of(cls, path: str, doing: str, error: OSError) -> StorageError:
        """Return *error* of the operating system as one of ours."""
        words = error.strerror or str(error)
        if error.filename not in (None, path):
            words = f"{words} ({error.filename!r})"  # a folder above the log
        return cls(path, doing, error.errno, words)

    def __str__(self) -> str:
        return (
            f"could not {self.doing} {self.path!r}: {self.words}. Nothing of this call was"
            " stored, and every record before it is kept. Mend the cause; then save again, or"
            " open the run again if this handle has stopped writing."
        )


class UnknownOutcomeError(StorageError):
    """The operating system refused too late to know whether the record is stored."""

    def __str__(self) -> str:
        return (
            f"could not {self.doing} {self.path!r}: {self.words}. Whether the record of this call"
            " is stored is unknown; every record before it is as it was. This handle writes"
            " nothing more. Look after the disk, then open the run again: last_record says what"
            " is there."
        )


class TornTailWarning(UserWarning):
    """Half a line, left by a crash before it was acknowledged, was dropped from a log."""


class RecoveryWarning(UserWarning):
    """A damaged log was replaced by the records that ``recover=`` keeps; the old file is aside."""
