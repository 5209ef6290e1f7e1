"""Record: one checkpoint, as it stands in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Record:
    """One checkpoint of a run: its turn, when it was saved, the state, its tags, its number."""

    __slots__ = ("_read", "_state", "meta", "seq", "ts", "turn")

    turn: int
    ts: float
    meta: dict[str, Any]
    seq: int
    _read: Callable[[], Any] | None
    _state: dict[str, Any]

    def __init__(
        self,
        turn: int,
        ts: float,
        data: Any,
        meta: dict[str, Any],
        seq: int,
        *,
        read: Callable[[], Any] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "turn", turn)
        put(self, "ts", ts)
        put(self, "meta", meta)
        put(self, "seq", seq)
        put(self, "_read", read)
        put(self, "_state", {} if read else {"data": data})

    @property
    def data(self) -> Any:
        """The saved state. It belongs to this record alone: the log does not follow its changes."""
        # A save returns before it decodes: most callers never look, and a state can be large.
        read = self._read
        if read is not None:
            # Of two threads that both decode it, both get what the first put there.
            self._state.setdefault("data", read())
            object.__setattr__(self, "_read", None)
        return self._state["data"]

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
