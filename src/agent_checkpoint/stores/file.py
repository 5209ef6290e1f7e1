"""A log in a file: read it, hold it, append to it, and leave it whole whatever happens.

Reading takes no lock and changes nothing. Writing goes ``take`` (lock, look, mend), then
``append``; both refuse a caller who has not seen the newest record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from .._core.line import EMPTY, VERSION, NewerVersion, Position
from .._core.scan import (
    Damage,
    Entry,
    Scan,
    Survivor,
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
    RecoveryWarning,
    StorageError,
    TornTailWarning,
    UnknownOutcomeError,
)
from . import _fsio, _lock, _rewrite
from ._warning import warn_caller

_TAIL_BYTES = 64 * 1024
_LONGEST_TAIL = 64 * 1024 * 1024


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
        self._held: _lock.Held | None = None
        self._poisoned = False
        self._attempt: Position | None = None
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
            scan = Scan(_fsio.chunks(fd))
            records = sum(1 for _ in scan)
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
            scan = Scan(_fsio.chunks(fd))
            yield from scan
            if scan.damage is not None:
                if self._recover != "prefix":
                    raise self._damaged(fd, scan.damage)
                self._refuse_what_no_mode_mends(fd, scan.damage)
        except OSError as error:
            raise self._refused("read", error) from error
        finally:
            _fsio.close(fd)

    def error_in(self, entry: Entry, reason: str) -> CorruptLogError:
        """Return the error for a line that proved itself and yet is no record."""
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
            if found is not None:
                return _view(found.last, found.torn)
            if base == 0 or wanted >= _LONGEST_TAIL:
                break
            wanted *= 4
        scan = Scan(_fsio.chunks(fd))
        for _ in scan:
            pass
        if scan.damage is not None:
            raise self._damaged(fd, scan.damage)
        return _view(scan.last, scan.torn)

    def _survey(self, fd: int) -> View | None:
        """Return what recover= keeps of the log, if it is damaged."""
        scan = Scan(_fsio.chunks(fd))
        good = [Survivor(e.seq, e.start, e.start + len(e.line), e.plain is None) for e in scan]
        if scan.damage is None:
            return None
        self._refuse_what_no_mode_mends(fd, scan.damage)
        kept = good if self._recover == "prefix" else survivors(_fsio.chunks(fd))
        last = next(self._entries_of(fd, kept[-1:]), None)
        view = _view(last, None)
        return view._replace(damage=scan.damage, kept=kept)

    def _entries_of(self, fd: int, kept: list[Survivor]) -> Iterator[Entry]:
        for survivor in kept:
            yield entry_of(survivor, _fsio.read(fd, survivor.start, survivor.end))

    def _damaged(self, fd: int, damage: Damage) -> CheckpointError:
        if damage.not_a_log and self._has_records(fd):
            damage = damage._replace(not_a_log=False)
        return self.error_of(damage)

    def _refuse_what_no_mode_mends(self, fd: int, damage: Damage) -> None:
        if damage.newer or (not self._has_records(fd) and damage.not_a_log):
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

    def hold(self, seen: Position = EMPTY) -> _lock.Held:
        """Take the lock, making the file if it is not there; RunLockedError if it is taken."""
        self._refuse_forked()
        if self._held is not None:
            if self._held.is_locked:
                return self._held
            self.release()
        self._refuse_wrong_kind()
        try:
            if seen.seq and _fsio.identity_at(self.path) is None:
                raise LogReplacedError(self.path, seen.seq, 0, "deleted")
            _fsio.make_folders(os.path.dirname(self.path))
            self._held = _lock.hold(self.path, id(self))
        except OSError as error:
            raise self._refused("open", error) from error
        return self._held

    def take(self, seen: Position) -> Position:
        """Hold the log, mended if a crash left it torn, and return where it ends.

        Whoever has not seen the newest record gets ConflictError, and nothing is changed.
        """
        if self._poisoned:
            raise PoisonedError(self.path)
        while True:
            held = self.hold(seen)
            with held.mutex:
                if not held.is_locked:
                    continue  # another handle of this process gave it up meanwhile
                try:
                    if held.ready and _fsio.at(self.path) == (held.identity, held.end):
                        return self._fence(held.position, seen)
                    held.ready = False
                    return self._make_ready(held, seen)
                except OSError as error:
                    raise self._refused("look after", error) from error
                finally:
                    if self._held is held and not held.ready:
                        self.release()

    def append(self, batch: Batch, *, after: Position, durable: bool) -> Position:
        """Append *batch*, and return once it is on the disk (or, not *durable*, in the system).

        StorageError: nothing of it is stored. UnknownOutcomeError: that cannot be known.
        """
        held = self._held
        if held is None:
            raise ClosedError(self.path)
        with held.mutex:
            self._fence(held.position, after)
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

    def release(self) -> None:
        """Let go of the lock, if this process has it."""
        held, self._held = self._held, None
        if held is not None and os.getpid() == self._pid:
            _lock.release(held, id(self))

    def _make_ready(self, held: _lock.Held, seen: Position) -> Position:
        self._refuse_if_moved(held, seen)
        view = self._look(held.fd)
        self._fence(view.position, seen)
        if view.kept is not None:
            kept = self._entries_of(held.fd, view.kept)
            self._held, aside = _rewrite.keep_only(self.path, held, kept, id(self))
            position = self._attempt = self._held.position
            warn_caller(_recovered_words(self.path, position.seq, aside), RecoveryWarning)
            return position
        _rewrite.remove_leftover(self.path)
        if view.torn is not None:
            _fsio.truncate(held.fd, view.end)
        size = _fsio.size(held.fd)
        if size and _fsio.read(held.fd, size - 1, size) != b"\n":
            # A record, or white space, that wants its newline.
            _fsio.write_all(held.fd, b"\n")
        try:
            # What the log holds may so far be in the system's memory only, and so may its name.
            _fsio.sync(held.fd)
            _fsio.sync_names(self.path)
        except OSError:
            self._poisoned = True
            raise
        held.end, held.position = _fsio.size(held.fd), view.position
        held.ready = True
        if view.torn is not None:
            warn_caller(_torn_words(self.path, view.torn), TornTailWarning)
        return view.position

    def _fence(self, now: Position, seen: Position) -> Position:
        # An interrupt can hit between the write and the return: then the newest record is ours.
        if now in (seen, self._attempt):
            return now
        if now.seq > seen.seq:
            raise ConflictError(self.path, seen.seq, now.seq)
        raise LogReplacedError(self.path, seen.seq, now.seq, "cut short, or its content replaced,")

    def _refuse_if_moved(self, held: _lock.Held, seen: Position) -> None:
        here = _fsio.identity_at(self.path)
        if here != held.identity:
            _lock.abandon(held)
            what = "deleted" if here is None else "replaced by another file"
            raise LogReplacedError(self.path, seen.seq, 0, what)

    def _cut_back(self, held: _lock.Held, end: int, *, durable: bool) -> bool:
        try:
            _fsio.truncate(held.fd, end)
            if durable:
                _fsio.sync(held.fd)
        except OSError:
            return False
        return True

    def _refuse_forked(self) -> None:
        pid = os.getpid()
        if pid != self._pid:
            raise ForkedError(self.path, self._pid, pid)

    def _refused(self, doing: str, error: OSError) -> StorageError:
        return StorageError(self.path, doing, error.errno, _words(error))


def _view(last: Entry | None, torn: Torn | None) -> View:
    if last is None:
        return View(EMPTY, 0, None, torn)
    return View(Position(last.seq, last.mark, turn_of(last)), last.end, last, torn)


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
