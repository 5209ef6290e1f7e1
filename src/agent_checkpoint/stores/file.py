"""A log in a file: read it, hold it, append to it, and leave it whole whatever happens.

Reading takes no lock and changes nothing. The first append locks, looks and mends; each append
refuses a caller who has not seen the newest record.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .._core.line import EMPTY, READER_LIMITS, VERSION, NewerVersion, NotARecord, Position
from .._core.scan import (
    Damage,
    Entry,
    Scan,
    Survivor,
    Tail,
    Torn,
    entry_of,
    survivors,
    tail,
    turn_of,
)
from ..errors import (
    CheckpointError,
    ClosedError,
    ConflictError,
    CorruptLogError,
    ForkedError,
    LogReplacedError,
    NewerFormatError,
    NotALogError,
    PathError,
    PoisonedError,
    ReaderLimitError,
    RecoveryWarning,
    ReentrantSaveError,
    StorageError,
    TornTailWarning,
    UnknownOutcomeError,
)
from . import _fsio, _lock, _rewrite
from ._stack import is_running
from ._warning import warn_caller

_TAIL_BYTES = 64 * 1024


class Batch(NamedTuple):
    """Finished lines, and where the log ends with them."""

    payload: bytes
    position: Position


class View(NamedTuple):
    """A log as it was read."""

    position: Position
    end: int
    last: Entry | None
    torn: Torn | None
    damage: Damage | None = None
    kept: list[Survivor] | None = None  # what recover= keeps of a damaged log


class LogFile:
    """One log in one file, as one handle sees it."""

    def __init__(self, path: str, recover: str) -> None:
        self.path = path
        self._recover = recover
        self._pid = os.getpid()
        self._mutex = threading.RLock()  # of the two below
        self._held: _lock.Held | None = None
        self._closed = False
        self._poisoned = False
        self._known: Position | None = None  # what the last append was written behind
        self._attempt: Position | None = None  # where the log ends if all of it was written
        self._refuse_wrong_kind()

    # -- reading ---------------------------------------------------------------------------

    def look(self) -> View:
        """Return where the log ends and its last record, reading no more of it than needed."""
        fd = self._open_read()
        if fd is None:
            return View(EMPTY, 0, None, None)
        try:
            return self._look(fd)
        except OSError as error:
            raise self._refused("read", error) from error
        finally:
            _fsio.close(fd)

    def verify(self) -> tuple[int, int, Torn | None, Damage | None]:
        """Read the whole log: its whole records, its size, what is torn, the first damage."""
        fd = self._open_read()
        if fd is None:
            return 0, 0, None, None
        try:
            scan, records = self._scan(fd)
            damage = scan.damage
            if damage is not None and damage.not_a_log and self._has_records(fd):
                damage = damage._replace(not_a_log=False)
            return records, _fsio.size(fd), scan.torn, damage
        except OSError as error:
            raise self._refused("read", error) from error
        finally:
            _fsio.close(fd)

    def entries(self) -> Iterator[Entry]:
        """Yield the records, oldest first; the log may grow meanwhile."""
        fd = self._open_read()
        if fd is None:
            return
        try:
            if self._recover == "salvage":
                damaged = self._survey(fd)
                if damaged is not None:
                    yield from self._entries_of(fd, damaged.kept or [])
                    return
            seq = 0
            damage: Damage | None = None
            while True:
                scan = Scan(_fsio.chunks(fd))
                for entry in scan:
                    if entry.seq > seq:
                        yield entry
                        seq = entry.seq
                if scan.damage is None:
                    return
                if damage is not None and scan.damage == damage:
                    if self._recover != "prefix":
                        raise self._damaged(fd, damage)
                    self._refuse_what_no_mode_mends(fd, damage)
                    return
                damage = scan.damage  # seen once: a writer may have cut the log back meanwhile
        except OSError as error:
            raise self._refused("read", error) from error
        finally:
            _fsio.close(fd)

    def error_in(self, entry: Entry, reason: str) -> CheckpointError:
        """Return the error for a line that proved itself and yet cannot be read as a record."""
        if reason in READER_LIMITS:
            return ReaderLimitError(self.path, entry.seq, reason)
        return CorruptLogError(self.path, entry.start, entry.seq, reason)

    def error_of(self, damage: Damage) -> CheckpointError:
        """Return *damage* as the error that a reader of this log gets."""
        if damage.newer:
            return NewerFormatError(self.path, damage.offset, damage.newer, VERSION)
        kind = NotALogError if damage.not_a_log else CorruptLogError
        return kind(self.path, damage.offset, damage.seq, damage.reason)

    def _look(self, fd: int) -> View:
        if self._recover != "tail":
            damaged = self._survey(fd)
            if damaged is not None:
                return damaged
        size = _fsio.size(fd)
        wanted = _TAIL_BYTES
        while size:
            base = max(0, size - wanted)
            found = tail(_fsio.read(fd, base, size), base)
            if isinstance(found, Tail):
                return self._view(found.last, found.torn)
            if found == "unclear" or base == 0:
                break
            wanted *= 8
        scan, _ = self._scan(fd)
        if scan.damage is not None:
            raise self._damaged(fd, scan.damage)
        return self._view(scan.last, scan.torn)

    def _scan(self, fd: int) -> tuple[Scan, int]:
        """Read the whole log, and count its records.

        Damage counts if it is seen twice: a writer may have cut the log back in between.
        """
        damage = None
        while True:
            scan = Scan(_fsio.chunks(fd))
            records = sum(1 for _ in scan)
            if scan.damage == damage:
                return scan, records
            damage = scan.damage

    def _survey(self, fd: int) -> View | None:
        """Return what recover= keeps of the log, if it is damaged."""
        scan, _ = self._scan(fd)
        if scan.damage is None:
            return None
        good = [
            Survivor(e.seq, e.start, e.start + len(e.line), e.plain is None)
            for e in Scan(_fsio.chunks(fd))
        ]
        self._refuse_what_no_mode_mends(fd, scan.damage)
        kept = good if self._recover == "prefix" else survivors(_fsio.chunks(fd))
        last = next(self._entries_of(fd, kept[-1:]), None)
        view = self._view(last, None)
        return view._replace(damage=scan.damage, kept=kept)

    def _view(self, last: Entry | None, torn: Torn | None) -> View:
        if last is None:
            return View(EMPTY, 0, None, torn)
        try:
            turn = turn_of(last)
        except NotARecord as reason:
            raise self.error_in(last, str(reason)) from None
        return View(Position(last.seq, last.mark, turn), last.end, last, torn)

    def _entries_of(self, fd: int, kept: list[Survivor]) -> Iterator[Entry]:
        for survivor in kept:
            yield entry_of(survivor, _fsio.read(fd, survivor.start, survivor.end))

    def _damaged(self, fd: int, damage: Damage) -> CheckpointError:
        if damage.not_a_log and self._has_records(fd):
            damage = damage._replace(not_a_log=False)
        return self.error_of(damage)

    def _refuse_what_no_mode_mends(self, fd: int, damage: Damage) -> None:
        if damage.newer and not damage.newer_by_a_bit:
            raise self.error_of(damage)
        if not self._has_records(fd) and damage.not_a_log:
            raise self.error_of(damage)

    def _has_records(self, fd: int) -> bool:
        try:
            return bool(survivors(_fsio.chunks(fd)))
        except NewerVersion as newer:
            raise NewerFormatError(self.path, 0, newer.version, VERSION) from None

    def _open_read(self) -> int | None:
        self._refuse_wrong_kind()
        try:
            return _fsio.open_read(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._refused("open", error) from error

    def _refuse_wrong_kind(self) -> None:
        try:
            kind = _fsio.kind_of(self.path)
        except OSError as error:
            raise self._refused("open", error) from error
        if kind not in ("file", "nothing"):
            raise PathError(self.path, kind)

    # -- writing ---------------------------------------------------------------------------

    def refuse_forked(self) -> None:
        """Raise ForkedError in a forked child of the process that opened this handle."""
        pid = os.getpid()
        if pid != self._pid:
            raise ForkedError(self.path, self._pid, pid)

    def hold(self, seen: Position | None = None) -> _lock.Held:
        """Take the lock, making the file if it is not there; RunLockedError if it is taken."""
        self.refuse_forked()
        with self._mutex:
            if self._closed:
                raise ClosedError(self.path)
            held = self._held
            if held is None or not held.is_locked:
                self._refuse_wrong_kind()
                try:
                    if seen is not None and seen.seq and _fsio.at(self.path) is None:
                        raise LogReplacedError(self.path, seen.seq, 0, "deleted")
                    _fsio.make_folders(os.path.dirname(self.path))
                    held = self._held = _lock.hold(self.path, id(self))
                except OSError as error:
                    raise self._refused("open", error) from error
            return held

    def append(
        self, lines_behind: Callable[[Position], Batch], *, seen: Position | None, durable: bool
    ) -> Position:
        """Append the lines that belong behind the newest record, and return where the log ends.

        When this returns they are on the disk (or, not *durable*, in the system). Whoever has not
        *seen* the newest record gets ConflictError. After StorageError nothing is stored; after
        UnknownOutcomeError that cannot be known.
        """
        if self._poisoned:
            raise PoisonedError(self.path)
        while True:
            held = self.hold(seen)
            try:
                with held.mutex:
                    if is_running(held.append):
                        raise ReentrantSaveError(self.path)
                    held.append = sys._getframe()  # pyright: ignore[reportPrivateUsage]
                    if not held.is_locked:
                        continue  # another handle of this process gave it up meanwhile
                    if not held.ready:
                        self._make_ready(held, seen)
                        continue
                    if _fsio.at(self.path) != (held.identity, held.end):
                        held.ready = False
                        continue
                    self._known = self._fence(held.position, seen)
                    batch = lines_behind(self._known)
                    if not batch.payload:
                        return batch.position
                    return self._write(held, batch, durable=durable)
            except BaseException as error:
                if not held.ready and self._held is held:
                    self.release()
                if isinstance(error, OSError):
                    self._poisoned = isinstance(error, _fsio.SyncFailedError)
                    raise self._refused("prepare", error) from error
                raise
            finally:
                if held.append is sys._getframe():  # pyright: ignore[reportPrivateUsage]
                    held.append = None
                if self._closed:
                    self.release()

    def release(self) -> None:
        """Let go of the lock, if this process has it, when no write goes on."""
        held = self._held
        if held is not None and is_running(held.append):
            return  # a signal handler closes in the middle of an append, which will release
        if os.getpid() == self._pid:
            _lock.release(id(self))
            self._held = None

    def close(self) -> None:
        """Release the log for good."""
        if os.getpid() == self._pid:
            with self._mutex:
                self._closed = True
            self.release()

    def forget(self) -> None:
        """Release the log without waiting: the handle is being collected."""
        if os.getpid() == self._pid:
            _lock.forget(id(self))

    def _write(self, held: _lock.Held, batch: Batch, *, durable: bool) -> Position:
        end = held.end
        self._attempt = batch.position
        written = False
        try:
            _fsio.write_all(held.fd, batch.payload)
            written = True
            if durable:
                _fsio.sync(held.fd)
            held.end, held.position = end + len(batch.payload), batch.position
        except BaseException as error:
            # The caller sees an error, so the records must not turn up later.
            held.ready = False
            is_cut = self._cut_back(held, end, durable=durable)
            if not isinstance(error, OSError):
                raise
            if is_cut and not written:
                raise self._refused("write to", error) from error
            # The system reports a failed sync once and calls the next one a success.
            self._poisoned = True
            _lock.abandon(held)
            raise UnknownOutcomeError(
                self.path, "sync" if written else "write to", error.errno, _words(error)
            ) from error
        return batch.position

    def _make_ready(self, held: _lock.Held, seen: Position | None) -> None:
        """Look at a log that was just locked, and mend what a crash left of it."""
        here = _fsio.at(self.path)
        if here is None or here[0] != held.identity:
            _lock.abandon(held)
            what = "deleted" if here is None else "replaced by another file"
            raise LogReplacedError(self.path, seen.seq if seen else 0, 0, what)
        view = self._look(held.fd)
        self._fence(view.position, seen)
        if view.kept is not None or held.identity in _lock.suspects:
            self._replace(held, view)
            return
        _rewrite.remove_leftover(self.path)
        size = here[1]
        if view.torn is not None:
            size = view.end
            _fsio.truncate(held.fd, size)
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
        held.position = view.position
        held.ready = True
        if view.torn is not None:
            warn_caller(_torn_words(self.path, view.torn), TornTailWarning)

    def _replace(self, held: _lock.Held, view: View) -> None:
        """Put the records that are kept of *held* into a new file, in its place."""
        if view.kept is None:
            entries: Iterator[Entry] = iter(Scan(_fsio.chunks(held.fd)))
        else:
            entries = self._entries_of(held.fd, view.kept)
        new = _rewrite.write_anew(self.path, entries, id(self))
        self._attempt = new.position
        aside = _rewrite.set_aside(self.path) if view.kept is not None else ""
        _rewrite.put_in_place(self.path, new)
        self._held = new
        _lock.abandon(held)
        _fsio.sync_names(self.path)
        _lock.suspects.discard(held.identity)
        new.ready = True
        if aside:
            warn_caller(_recovered_words(self.path, new.position.seq, aside), RecoveryWarning)

    def _fence(self, now: Position, seen: Position | None) -> Position:
        # An interrupt can hit between the write and the return: then the newest record is ours.
        if seen is None or now in (seen, self._known, self._attempt):
            return now
        if now.seq > seen.seq:
            raise ConflictError(self.path, seen.seq, now.seq)
        raise LogReplacedError(self.path, seen.seq, now.seq, "cut short, or its content replaced,")

    def _cut_back(self, held: _lock.Held, end: int, *, durable: bool) -> bool:
        try:
            _fsio.truncate(held.fd, end)
            if durable:
                _fsio.sync(held.fd)
        except OSError:
            return False
        return True

    def _refused(self, doing: str, error: OSError) -> StorageError:
        return StorageError(self.path, doing, error.errno, _words(error))


def _words(error: OSError) -> str:
    return error.strerror or str(error)


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
