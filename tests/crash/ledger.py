"""What the callers of save() were told, and whether a log bears it out."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_checkpoint import (
    Checkpointer,
    CheckpointError,
    Record,
    RecoveryWarning,
    TornTailWarning,
    UnknownOutcomeError,
)


class Ledger:
    """Notes how each save ended. *kept* is what the log held before, by seq."""

    def __init__(self, kept: dict[int, Any] | None = None) -> None:
        self.kept = dict(kept or {})
        self.acknowledged: dict[int, Any] = {}
        self.refused: list[Any] = []
        self.unknown: list[Any] = []
        self.errors: list[CheckpointError] = []
        self._mutex = threading.Lock()

    def save(self, run: Checkpointer, state: Any) -> Record | None:
        """Save *state* and note what came of it; any other exception than ours gets out."""
        try:
            record = run.save(state)
        except CheckpointError as error:
            with self._mutex:
                self.errors.append(error)
                unknown = isinstance(error, UnknownOutcomeError)
                (self.unknown if unknown else self.refused).append(state)
            return None
        with self._mutex:
            assert record.seq not in self.acknowledged, "one seq was given to two records"
            self.acknowledged[record.seq] = state
        return record

    def attempt(self, act: Callable[[], Any]) -> Any:
        """Return what *act* returns; if it raises one of our errors, note that and return it."""
        try:
            return act()
        except CheckpointError as error:
            with self._mutex:
                self.errors.append(error)
            return error

    def forget_tracebacks(self) -> None:
        """Let go of what the errors hold by their tracebacks."""
        for error in self.errors:
            error.with_traceback(None)
            error.__cause__ = error.__context__ = None

    def settle(self, path: Path, *, recover: str = "tail") -> None:
        """Check that the log at *path* bears out what was said, and that the run goes on."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            warnings.simplefilter("ignore", RecoveryWarning)
            self.compare(path, recover=recover)
            with Checkpointer(path, recover=recover) as run:
                assert self.save(run, "and so on") is not None, self.errors[-1]
            self.compare(path)

    def compare(self, path: Path, *, recover: str = "tail") -> None:
        records = list(Checkpointer(path, recover=recover, readonly=True).records())
        found = {record.seq: record.data for record in records}
        told = {**self.kept, **self.acknowledged}
        seqs = [record.seq for record in records]
        first = max(self.kept, default=0)

        assert {seq: found.get(seq) for seq in told} == told, "an acknowledged record is lost"
        assert [seq for seq in seqs if seq <= first] == sorted(self.kept)
        assert [seq for seq in seqs if seq > first] == [*range(first + 1, max([*seqs, first]) + 1)]
        for seq in found.keys() - told.keys():
            assert found[seq] in self.unknown, f"{found[seq]!r} is there, though it was refused"
        extra = [found[seq] for seq in found.keys() - told.keys()]
        assert len(extra) == len({repr(state) for state in extra}), "a record is there twice"
