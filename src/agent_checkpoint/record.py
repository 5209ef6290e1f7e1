"""Record: one checkpoint, as it stands in the log."""

from __future__ import annotations

import threading
from typing import Any

from ._core.codec import decode

_UNREAD: Any = object()
_reading = threading.RLock()  # two threads that look at one record get one state


class Record:
    """One checkpoint of a run: its turn, when it was saved, the state, its tags, its number."""

    __slots__ = ("_data", "_json", "meta", "seq", "ts", "turn")

    turn: int
    ts: float
    meta: dict[str, Any]
    seq: int
    _data: Any
    _json: bytes

    def __init__(
        self,
        turn: int,
        ts: float,
        data: Any,
        meta: dict[str, Any],
        seq: int,
        *,
        data_json: bytes = b"",
    ) -> None:
        put = object.__setattr__
        put(self, "turn", turn)
        put(self, "ts", ts)
        put(self, "meta", meta)
        put(self, "seq", seq)
        put(self, "_json", data_json)
        put(self, "_data", _UNREAD if data_json else data)

    @property
    def data(self) -> Any:
        """The saved state. It belongs to this record alone: the log does not follow its changes."""
        # A save returns before it decodes: most callers never look, and a state can be large.
        data = self._data
        if data is _UNREAD:
            with _reading:
                if self._data is _UNREAD:
                    object.__setattr__(self, "_data", decode(self._json))
                    object.__setattr__(self, "_json", b"")
                data = self._data
        return data

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Record is read-only; {name!r} stays as it was saved")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Record is read-only; {name!r} stays as it was saved")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.seq, self.turn, self.ts, self.meta, self.data) == (
            other.seq,
            other.turn,
            other.ts,
            other.meta,
            other.data,
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (Record, (self.turn, self.ts, self.data, self.meta, self.seq))

    def __repr__(self) -> str:
        return f"Record(seq={self.seq}, turn={self.turn}, ts={self.ts!r}, meta={self.meta!r})"
