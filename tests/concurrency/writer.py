"""A process of its own that does with its one handle what it is told, a JSON line a command."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

from agent_checkpoint import Checkpointer, CheckpointError, Record


class Hand:
    """The commands, by name."""

    def __init__(self) -> None:
        self._ckpt: Checkpointer | None = None

    @property
    def ckpt(self) -> Checkpointer:
        assert self._ckpt is not None
        return self._ckpt

    def open(self, path: str, options: dict[str, Any]) -> None:
        self._ckpt = Checkpointer(path, **options)

    def enter(self) -> None:
        self.ckpt.__enter__()

    def save(self, data: Any) -> list[int]:
        record = self.ckpt.save(data)
        return [record.seq, record.turn]

    def last(self) -> Any:
        return _data_of(self.ckpt.last_record)

    def read(self) -> list[Any]:
        return [record.data for record in self.ckpt.records()]

    def close(self) -> None:
        self.ckpt.close()

    def drop(self) -> None:
        self._ckpt = None
        gc.collect()


def _data_of(record: Record | None) -> Any:
    return None if record is None else record.data


def main() -> None:
    """Obey until there are no more commands."""
    hand = Hand()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        act: Callable[..., Any] = getattr(hand, name)
        answer: dict[str, Any]
        try:
            answer = {"value": act(*arguments)}
        except CheckpointError as error:
            answer = {"error": type(error).__name__, "arguments": error.args}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
