"""A log in a file: hold it, append to it, and leave it whole whatever happens.

The first append locks, looks and mends; each append refuses a caller who has not seen the newest
record. Reading is in ``_reading``.

An interrupt (Ctrl-C) can end any line here, and a signal handler can call any method in the middle
of another one. So what an append is about to do is noted before it is done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .._core.codec import BeyondReader
from .._core.line import EMPTY, Fields, Position
from .._core.scan import Entry
from ..errors import (
    ClosedError,
    ConflictError,
    ForkedError,
    LogReplacedError,
    PoisonedError,
    ReaderLimitError,
    RecoveryWarning,
    ReentrantSaveError,
    StorageError,
    TornTailWarning,
    UnknownOutcomeError,
)
from ..report import Report, Torn
from . import _fsio, _lock, _rewrite
from ._mutex import is_mine, locked
from ._reading import LogReader, View
from ._warning import warn_caller


class Batch(NamedTuple):
    """Finished lines, and where the log ends with them."""

    payload: bytes
    position: Position


class LogFile:
    """One log in one file, as one handle sees it."""

    def __init__(self, path: str, recover: str) -> None:
        self.path = path
        self._reader = LogReader(path, recover)
        self._pid = os.getpid()
        self._mutex = threading.RLock()  # of the two below
        self._held: _lock.Held | None = None
        self._has_looked = recover == "tail"  # damage that another handle passes by is to be mended
        self._is_appending = False
        self._closed = False
        self._poisoned = False
        self._seen = EMPTY  # where the log ended when this handle last looked
        self._attempt: Position | None = None  # where it ends if the last append was whole
        self._reader.refuse_wrong_kind()

    # -- reading ---------------------------------------------------------------------------

    def last(self) -> Entry | None:
        """Return the newest record; a writer has then seen it."""
        before = self._seen
        view = self._reader.look()
        self._saw(before, view.position)
        return view.last

    def entries(self) -> Iterator[Entry]:
        """Yield the records, oldest first; a writer who reads them all has seen the newest."""
        before = self._seen
        position = EMPTY
        for entry in self._reader.entries():
            yield entry
            position = entry.position
        self._saw(before, position)

    def verify(self) -> Report:
        """Read every byte, and tell what the log holds."""
        return self._reader.verify()

    def fields(self, entry: Entry) -> Fields:
        """Read the members of a record."""
        return self._reader.fields(entry)

    def _saw(self, before: Position, position: Position) -> None:
        # Another thread may have written meanwhile: what it wrote is newer than what was read.
        if self._seen is before:
            self._seen = position

    # -- writing ---------------------------------------------------------------------------

    def refuse_forked(self) -> None:
        """Raise ForkedError in a forked child of the process that opened this handle."""
        pid = os.getpid()
        if pid != self._pid:
            raise ForkedError(self.path, self._pid, pid)

    def hold(self) -> _lock.Held:
        """Take the lock, making the file if it is not there; RunLockedError if it is taken."""
        self.refuse_forked()
        return locked(self._mutex, self._hold)

    def _hold(self) -> _lock.Held:
        if self._closed:
            raise ClosedError(self.path)
        held = self._held
        if held is None or not held.is_locked:
            self._reader.refuse_wrong_kind()
            try:
                if self._seen.seq and not _fsio.at(self.path):
                    raise LogReplacedError(self.path, self._seen.seq, 0, "deleted")
                _fsio.make_folders(os.path.dirname(self.path))
                held = _lock.hold(self.path, id(self))
                if os.getpid() != self._pid:
                    _lock.disown(held)  # a signal handler forked meanwhile, and this is the child
                    self.refuse_forked()
                self._held = held
            except OSError as error:
                self.refuse_forked()
                raise StorageError.of(self.path, "open", error) from error
        return held

    def append(self, lines_behind: Callable[[Position], Batch], *, durable: bool) -> None:
        """Append the lines that belong behind the newest record.

        When this returns they are on the disk (or, not *durable*, in the system). Whoever has not
        seen the newest record gets ConflictError. After StorageError nothing is stored; after
        UnknownOutcomeError that cannot be known.
        """
        if self._poisoned:
            raise PoisonedError(self.path)
        was_held = self._held is not None and self._held.is_locked
        is_done = False
        self._is_appending = True
        try:
            while not is_done:
                is_done = self._append_once(lines_behind, durable=durable)
        except OSError as error:
            self._poisoned = isinstance(error, _fsio.SyncFailedError)
            raise StorageError.of(self.path, "prepare", error) from error
        except BeyondReader as beyond:
            raise ReaderLimitError(self.path, beyond.seq, beyond.reason) from None
        finally:
            self._is_appending = False
            if self._closed or not (is_done or was_held):
                self.release()

    def release(self) -> None:
        """Let go of the lock, if this process has it, when no write goes on."""
        held = self._held
        if held is not None and is_mine(held.mutex) and self._is_appending:
            return  # a signal handler closes in the middle of an append, which will release
        if os.getpid() == self._pid:
            _lock.release(id(self))
            self._held = None

    def close(self) -> None:
        """Release the log for good."""
        if os.getpid() == self._pid:
            locked(self._mutex, self._note_closed)
            self.release()

    def _note_closed(self) -> None:
        self._closed = True

    def forget(self) -> None:
        """Release the log without waiting: the handle is being collected."""
        if os.getpid() == self._pid:
            _lock.forget(id(self))

    def _append_once(self, lines_behind: Callable[[Position], Batch], *, durable: bool) -> bool:
        """Come one step nearer to the append; True if it is done."""
        held = self._held
        if held is None or not held.is_locked:
            held = self.hold()
        if is_mine(held.mutex):
            raise ReentrantSaveError(self.path)
        try:
            return locked(held.mutex, self._append_to, held, lines_behind, durable)
        except BaseException:
            self.refuse_forked()  # a signal handler forked meanwhile, and this is the child
            raise

    def _append_to(
        self,
        held: _lock.Held,
        lines_behind: Callable[[Position], Batch],
        durable: bool,  # noqa: FBT001 - as `locked` hands it on
    ) -> bool:
        if not held.is_locked:
            return False  # another handle of this process gave it up meanwhile
        if not (held.ready and self._has_looked):
            self._make_ready(held)
            self._has_looked = True
            return False
        if _fsio.at(self.path) != (held.identity, held.end):
            held.ready = False
            return False
        self._fence(held.position)
        batch = lines_behind(held.position)
        if batch.payload:
            self._write(held, batch, durable=durable)
        return True

    def _write(self, held: _lock.Held, batch: Batch, *, durable: bool) -> None:
        end = held.end
        self._attempt = batch.position
        written = False
        try:
            _fsio.write_all(held.fd, batch.payload)
            written = True
            if durable:
                _fsio.sync(held.fd)
        except BaseException as error:
            # The caller sees an error, so the records must not turn up later.
            held.ready = False
            is_cut = self._cut_back(held, end, durable=durable)
            if not isinstance(error, OSError):
                raise
            if is_cut and not written:
                raise StorageError.of(self.path, "write to", error) from error
            # The system reports a failed sync once and calls the next one a success.
            self._poisoned = True
            if written and (not is_cut or held.durable_end < end):
                _lock.suspects.add(held.identity)
            _lock.abandon(held)
            doing = "sync" if written else "write to"
            raise UnknownOutcomeError.of(self.path, doing, error) from error
        held.grow(len(batch.payload), batch.position, durable=durable)
        self._seen = batch.position

    def _make_ready(self, held: _lock.Held) -> None:
        """Look at a log that was just locked, and mend what a crash left of it."""
        here = _fsio.at(self.path)
        if here is None or here[0] != held.identity:
            _lock.abandon(held)
            what = "deleted" if here is None else "replaced by another file"
            raise LogReplacedError(self.path, self._seen.seq, 0, what)
        view = self._reader.look_at(held.fd)
        self._fence(view.position)
        if view.is_damaged or held.identity in _lock.suspects:
            self._replace(held, view)
        else:
            self._mend(held, view, here[1])

    def _mend(self, held: _lock.Held, view: View, size: int) -> None:
        """Cut off what is torn, and make the rest durable."""
        _rewrite.remove_leftover(self.path)
        if view.torn is not None:
            size = view.end
            _fsio.truncate(held.fd, size)
            # At once: if what follows fails, the next look finds nothing torn.
            warn_caller(_torn_words(self.path, view.torn), TornTailWarning)
        held.end = size
        if size and _fsio.read(held.fd, size - 1, size) != b"\n":
            # A record, or white space, that wants its newline.
            _fsio.write_all(held.fd, b"\n")
            held.end = size + 1
        try:
            # What the log holds may so far be in the system's memory only, and so may its name.
            _fsio.sync(held.fd)
            _fsio.sync_names(self.path)
        except _fsio.SyncFailedError:
            _lock.suspects.add(held.identity)
            raise
        held.durable_end = held.end
        held.position = view.position
        held.ready = True

    def _replace(self, held: _lock.Held, view: View) -> None:
        """Put the records that are kept of *held* into a new file, in its place."""
        new = _rewrite.write_anew(self.path, self._reader.kept(held.fd), id(self))
        self._attempt = new.position
        aside = _rewrite.put_in_place(self.path, new, is_old_kept=view.is_damaged)
        self._held = new
        _lock.abandon(held)
        if aside:
            warn_caller(_recovered_words(self.path, new.position.seq, aside), RecoveryWarning)
        _fsio.sync_names(self.path)
        _lock.suspects.discard(held.identity)
        new.ready = True

    def _fence(self, now: Position) -> None:
        """Refuse to write behind a record that this handle has not seen."""
        # An interrupt can hit between the write and the return: then the newest record is ours.
        seen = self._seen
        if now in (seen, self._attempt):
            self._seen = now
        elif now.seq > seen.seq:
            raise ConflictError(self.path, seen.seq, now.seq)
        else:
            what = "cut short, or its content replaced,"
            raise LogReplacedError(self.path, seen.seq, now.seq, what)

    def _cut_back(self, held: _lock.Held, end: int, *, durable: bool) -> bool:
        try:
            _fsio.truncate(held.fd, end)
            if durable:
                _fsio.sync(held.fd)
        except _fsio.SyncFailedError:
            _lock.suspects.add(held.identity)
            return False
        except OSError:
            return False
        return True


def _torn_words(path: str, torn: Torn) -> str:
    return (
        f"{path!r} ended in {torn.length} bytes of a record that a crash cut short, from byte"
        f" {torn.offset} on; they were never acknowledged, and were dropped. They began with"
        f" {torn.beginning[:60]!r}. Every record before them is whole."
    )


def _recovered_words(path: str, seq: int, aside: str) -> str:
    return (
        f"{path!r} was damaged. It now holds the records that could be kept, up to record {seq};"
        f" the file as it was is {aside!r}."
    )
