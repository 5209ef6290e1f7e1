"""What a log in a file holds. Reading takes no lock and changes nothing.

The log may grow meanwhile, and a writer may cut back what it could not make durable: so damage
counts only if it is seen twice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .._core.codec import BeyondReader
from .._core.line import EMPTY, MAX_LINE_BYTES, VERSION, Fields, NotARecord, Position
from .._core.salvage import entry_of, has_records, newer_line_in, survivors
from .._core.scan import Entry, Scan
from .._core.tail import Tail, tail
from ..errors import (
    CheckpointError,
    CorruptLogError,
    NewerFormatError,
    NotALogError,
    PathError,
    ReaderLimitError,
    StorageError,
)
from ..report import Damage, Report, Torn
from . import _fsio

_TAIL_BYTES = 64 * 1024


class View(NamedTuple):
    """A log as it was read."""

    position: Position
    end: int
    last: Entry | None
    torn: Torn | None
    is_damaged: bool = False  # and so last is the last one that recover= keeps


class LogReader:
    """Reads the log at *path*; *recover* says what of a damaged one."""

    def __init__(self, path: str, recover: str) -> None:
        self.path = path
        self._recover = recover

    def look(self) -> View:
        """Return where the log ends and its last record, reading no more of it than needed."""
        with self._opened() as fd:
            return View(EMPTY, 0, None, None) if fd is None else self.look_at(fd)

    def verify(self) -> Report:
        """Read the whole log, and tell what it holds."""
        with self._opened() as fd:
            if fd is None:
                return Report(0, 0, None, None)
            scan, records = self._scan(fd, is_deep=True)
            damage, _ = self._judge(fd, scan)
            return Report(records, _fsio.size(fd), scan.torn, damage)

    def entries(self) -> Iterator[Entry]:
        """Yield the records, oldest first."""
        with self._opened() as fd:
            if fd is None:
                return
            if self._recover == "salvage" and self._survey(fd) is not None:
                yield from self.kept(fd)
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
                if scan.damage == damage:
                    if self._recover != "prefix":
                        raise self._damaged(fd, scan)
                    self._refuse_what_no_mode_mends(fd, scan)
                    return
                damage = scan.damage

    def look_at(self, fd: int) -> View:
        """Do as look(), in a file that is open."""
        if self._recover != "tail":
            view = self._survey(fd)
            if view is not None:
                return view
        size = _fsio.size(fd)
        wanted = _TAIL_BYTES
        while size and wanted <= 4 * MAX_LINE_BYTES:
            base = max(0, size - wanted)
            found = tail(_fsio.read(fd, base, size), base)
            if isinstance(found, Tail):
                return self._view(found.last, found.torn)
            if found == "unclear" or base == 0:
                break
            wanted *= 8
        scan, _ = self._scan(fd)
        if scan.damage is not None:
            raise self._damaged(fd, scan)
        return self._view(scan.last, scan.torn)

    def kept(self, fd: int) -> Iterator[Entry]:
        """Yield the records that recover= keeps; with "tail", damage is an error behind them."""
        if self._recover == "salvage":
            # The places of all of them are listed first: they may be out of order.
            for survivor in survivors(_fsio.chunks(fd)):
                yield entry_of(survivor, _fsio.read(fd, survivor.start, survivor.end))
            return
        scan = Scan(_fsio.chunks(fd))
        yield from scan
        if scan.damage is not None and self._recover == "tail":
            raise self._damaged(fd, scan)

    def fields(self, entry: Entry) -> Fields:
        """Read the members of a record."""
        try:
            return entry.fields()
        except NotARecord as reason:
            # The line proved itself: whoever wrote it meant it so.
            raise CorruptLogError(self.path, entry.start, entry.seq, str(reason)) from None
        except BeyondReader as beyond:
            raise ReaderLimitError(self.path, beyond.seq, beyond.reason) from None

    def refuse_wrong_kind(self) -> None:
        """Raise PathError if something else than a file stands at the path."""
        try:
            kind = _fsio.kind_of(self.path)
        except OSError as error:
            raise StorageError.of(self.path, "open", error) from error
        if kind not in ("file", "nothing"):
            raise PathError(self.path, kind)

    @contextmanager
    def _opened(self) -> Generator[int | None, None, None]:
        """Open the log to read it; None if there is none."""
        self.refuse_wrong_kind()
        fd = None
        try:
            fd = _fsio.open_read(self.path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise StorageError.of(self.path, "open", error) from error
        try:
            yield fd
        except OSError as error:
            raise StorageError.of(self.path, "read", error) from error
        except BeyondReader as beyond:
            raise ReaderLimitError(self.path, beyond.seq, beyond.reason) from None
        finally:
            if fd is not None:
                _fsio.close(fd)

    def _view(self, last: Entry | None, torn: Torn | None) -> View:
        if last is None:
            return View(EMPTY, 0, None, torn)
        return View(last.position, last.end, last, torn)

    def _scan(self, fd: int, *, is_deep: bool = False) -> tuple[Scan, int]:
        """Read the whole log, and count its records; *is_deep* reads the members of each."""
        damage = None
        while True:
            scan = Scan(_fsio.chunks(fd))
            records = 0
            for entry in scan:
                try:
                    _ = is_deep and entry.fields()
                except NotARecord as reason:
                    scan.damage = Damage(entry.start, entry.seq, str(reason))
                    break
                records += 1
            if scan.damage == damage:
                return scan, records
            damage = scan.damage

    def _survey(self, fd: int) -> View | None:
        """Return what recover= keeps of the log, if it is damaged."""
        scan, _ = self._scan(fd)
        if scan.damage is None:
            return None
        self._refuse_what_no_mode_mends(fd, scan)
        last = scan.last
        if self._recover == "salvage":
            last = None
            for newest in survivors(_fsio.chunks(fd))[-1:]:
                last = entry_of(newest, _fsio.read(fd, newest.start, newest.end))
        return self._view(last, None)._replace(is_damaged=True)

    def _refuse_what_no_mode_mends(self, fd: int, scan: Scan) -> None:
        """Raise if the file was never a log, or a newer release wrote to it."""
        newer = newer_line_in(_fsio.chunks(fd))
        if newer is not None:
            raise self._newer(newer)
        if scan.is_foreign and not has_records(_fsio.chunks(fd)):
            raise self._damaged(fd, scan)

    def _judge(self, fd: int, scan: Scan) -> tuple[Damage | None, bool]:
        """Return the damage of the log, and whether it never was one."""
        if scan.is_foreign:
            newer = newer_line_in(_fsio.chunks(fd))
            return newer or scan.damage, newer is None and not has_records(_fsio.chunks(fd))
        return scan.damage, False

    def _damaged(self, fd: int, scan: Scan) -> CheckpointError:
        damage, is_foreign = self._judge(fd, scan)
        assert damage is not None
        if damage.newer:
            return self._newer(damage)
        kind = NotALogError if is_foreign else CorruptLogError
        return kind(self.path, damage.offset, damage.seq, damage.reason)

    def _newer(self, damage: Damage) -> NewerFormatError:
        return NewerFormatError(self.path, damage.offset, damage.newer, VERSION)
