"""Checkpointer: one run. Each save is one line, durable when it returns."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from ._core.codec import BeyondReader, decode, encode, show, type_name
from ._core.line import MAX_JSON_BYTES, MAX_SEQ, MAX_TURN, Position, body, seal
from ._core.scan import Entry
from ._shared_write import SharedWrite
from .errors import (
    ArgumentError,
    CheckpointError,
    ClosedError,
    NotCopyableError,
    ReaderLimitError,
    ReadOnlyError,
    RecordNotFoundError,
    RecordTooLargeError,
    StorageError,
)
from .record import Record
from .report import Report
from .stores.file import Batch, LogFile

if TYPE_CHECKING:
    from types import TracebackType

DURABILITIES = ("sync", "flush")
RECOVERIES = ("tail", "prefix", "salvage")
RESERVED_META = frozenset(("label", "run_id", "rollback", "undo", "fork", "tag", "object"))
"""Names in a record's meta that belong to this package."""


class Checkpointer:
    """One run in one file, one line a checkpoint.

    A program that opens the path again finds the newest checkpoint in ``last_record`` and goes on
    from there. Use it in a ``with`` block: the run is then locked from the start and released at
    the end; without one, the lock is taken by the first save.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        label: str | None = None,
        run_id: str | None = None,
        durability: str = "sync",
        recover: str = "tail",
        readonly: bool = False,
    ) -> None:
        _refuse_unless_one_of("durability", durability, DURABILITIES)
        _refuse_unless_one_of("recover", recover, RECOVERIES)
        tags: dict[str, Any] = {}
        for name, value in (("label", label), ("run_id", run_id)):
            if value is not None:
                if not isinstance(value, str):
                    raise ArgumentError(name, show(value), "a str or None")
                tags[name] = value
        self._tags = tags
        self._tags_json = encode(tags, "meta")
        self._durable = durability == "sync"
        self._readonly = readonly
        self._log = LogFile(_path_of(path), recover)

        self._writes: SharedWrite[_Item] = SharedWrite(self._log.path)
        self._tried: tuple[Position | None, list[_Item]] = None, []
        self._closed = False
        try:
            self._log.last()
        except StorageError:
            raise
        except CheckpointError:
            pass  # verify() is how one looks at a damaged log; those who read or write it are told

    @property
    def path(self) -> str:
        """The log's absolute path."""
        return self._log.path

    def save(
        self, data: Any, turn: int | None = None, *, meta: dict[str, Any] | None = None
    ) -> Record:
        """Append *data* as the state at *turn* (by default the last turn + 1).

        Returns when the record is durable. After an error nothing of it is stored, but for
        UnknownOutcomeError, which says so. An interrupt (Ctrl-C) leaves either: last_record tells.
        """
        self._log.refuse_forked()
        if turn is not None and (type(turn) is not int or not 0 <= turn <= MAX_TURN):
            raise ArgumentError("turn", show(turn), f"a whole number from 0 to {MAX_TURN}")
        data_json = encode(data, "data")
        meta_json = self._tags_json if meta is None else self._joined(meta)
        size = len(data_json) + len(meta_json)
        if size > MAX_JSON_BYTES:
            raise RecordTooLargeError(size, MAX_JSON_BYTES)
        item = _Item(data_json, meta_json, turn)
        self._writes.run(item, self._commit)
        if item.error is not None:
            raise item.error
        tags = dict(self._tags) if meta is None else decode(meta_json)
        read = partial(_state_in, data_json, self._log.path, item.seq)
        return Record(item.turn, item.ts, None, tags, item.seq, read=read)

    @property
    def last_record(self) -> Record | None:
        """The newest checkpoint, or None if there is none; read from the log each time."""
        entry = self._log.last()
        return None if entry is None else self._record(entry)

    def records(self) -> Iterator[Record]:
        """Yield every record, oldest first, one at a time in memory."""
        for entry in self._log.entries():
            yield self._record(entry)

    def at(self, turn: int | None = None, *, seq: int | None = None) -> Record:
        """Return the newest record of *turn*, or the record *seq*."""
        if (turn is None) == (seq is None):
            raise ArgumentError("turn or seq", "given twice, or not at all", "one of the two")
        name, number, number_of = ("turn", turn, _turn_of) if seq is None else ("seq", seq, _seq_of)
        if type(number) is not int:
            raise ArgumentError(name, show(number), "a whole number")
        found = None
        for entry in self._log.entries():
            if number_of(entry) == number:
                found = entry
                if seq is not None:
                    break
        if found is None:
            raise RecordNotFoundError(self.path, name, number)
        return self._record(found)

    def verify(self) -> Report:
        """Read every byte of the log and report what it holds; nothing is changed."""
        return self._log.verify()

    def close(self) -> None:
        """Release the run. What was saved is saved already."""
        self._closed = True
        self._log.close()

    def __enter__(self) -> Checkpointer:
        if self._closed:
            raise ClosedError(self.path)
        if not self._readonly:
            self._log.hold()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # At the interpreter's end the system unlocks, and imports no longer work.
        log = self.__dict__.get("_log")
        if log is not None and not sys.is_finalizing():
            log.forget()

    def __reduce__(self) -> NoReturn:
        raise NotCopyableError(self.path)

    def __repr__(self) -> str:
        return f"Checkpointer({self.path!r})"

    def _commit(self, items: list[_Item]) -> None:
        """Write *items* as consecutive records, in one append."""
        try:
            if self._readonly:
                raise ReadOnlyError(self.path)
            self._log.append(partial(self._lines_of, items), durable=self._durable)
        except CheckpointError as error:
            # Each waiting thread raises an error of its own: a traceback belongs to one thread.
            for item in items:
                item.error = item.error or _copy_of(error)
        for item in items:
            item.done = True
        self._tried = None, []

    def _lines_of(self, items: list[_Item], position: Position) -> Batch:
        """Number *items* as the records behind *position* and return their lines."""
        tried, tried_items = self._tried
        if position == tried:
            # An interrupt ended the last append when its records were in the log already.
            for item in tried_items:
                item.done = True
        seq, mark, turn = position
        lines: list[bytes] = []
        for item in items:
            if item.done:
                continue
            item_turn = turn + 1 if item.wanted_turn is None else item.wanted_turn
            if item_turn > MAX_TURN or seq == MAX_SEQ:
                full = ("turn", item_turn, MAX_TURN) if seq < MAX_SEQ else ("seq", seq + 1, MAX_SEQ)
                item.error = ArgumentError(full[0], str(full[1]), f"at most {full[2]}")
                continue
            item.seq = seq = seq + 1
            item.turn = turn = item_turn
            item.ts = ts = time.time()
            line, mark = seal(body(turn, ts, item.data, item.meta), seq, mark)
            lines.append(line)
        end = Position(seq, mark, turn)
        self._tried = end, items
        return Batch(b"".join(lines), end)

    def _joined(self, meta: dict[str, Any]) -> bytes:
        if type(meta) is not dict:
            raise ArgumentError("meta", f"a {type_name(type(meta))}", "a dict or None")
        taken = RESERVED_META.intersection(meta)
        if taken:
            raise ArgumentError(
                "meta", f"a dict with the name {sorted(taken)[0]!r}",
                f"a dict without the names {', '.join(sorted(RESERVED_META))}, which are this"
                " package's own (label= and run_id= are arguments of Checkpointer)",
            )  # fmt: skip
        return encode({**self._tags, **meta}, "meta")

    def _record(self, entry: Entry) -> Record:
        turn, ts, data, meta = self._log.fields(entry)
        return Record(turn, ts, data, meta, entry.seq)


class _Item:
    """A save on its way into the log."""

    __slots__ = ("data", "done", "error", "meta", "seq", "ts", "turn", "wanted_turn")

    def __init__(self, data: bytes, meta: bytes, wanted_turn: int | None) -> None:
        self.data, self.meta, self.wanted_turn = data, meta, wanted_turn
        self.turn = self.seq = 0
        self.ts = 0.0
        self.done = False
        self.error: CheckpointError | None = None


def _state_in(data_json: bytes, path: str, seq: int) -> Any:
    try:
        return decode(data_json)
    except BeyondReader as beyond:
        raise ReaderLimitError(path, seq, beyond.reason) from None


def _turn_of(entry: Entry) -> int:
    return entry.turn


def _seq_of(entry: Entry) -> int:
    return entry.seq


def _path_of(path: str | os.PathLike[str]) -> str:
    try:
        name = os.fspath(path)
    except TypeError:
        raise ArgumentError("path", show(path), "the name of a file, as a str or a Path") from None
    if not isinstance(name, str) or not name or "\0" in name or not _is_a_name(name):
        raise ArgumentError("path", show(name), "the name of a file, as a str or a Path")
    if name.endswith(os.sep) or (os.altsep and name.endswith(os.altsep)):
        raise ArgumentError("path", show(name), "the name of a file, not of a folder")
    try:
        if os.name == "posix" and os.pardir in name.split(os.sep):
            return os.path.join(os.getcwd(), name)  # abspath would take x/.. out, were x a link too
        return os.path.abspath(name)
    except OSError as error:
        words = f"this process's folder is gone ({error.strerror})"
        raise StorageError(name, "find", error.errno, words) from error


def _is_a_name(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeError:
        return False
    return True


def _refuse_unless_one_of(name: str, value: object, wanted: tuple[str, ...]) -> None:
    if value not in wanted:
        raise ArgumentError(name, show(value), " or ".join(map(repr, wanted)))


def _copy_of(error: CheckpointError) -> CheckpointError:
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy
