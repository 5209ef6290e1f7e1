"""Refusals: an error of ours that helps, and nothing changed on the disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import Checkpointer, CheckpointError
from tests.logs import snapshot

RECOVERIES = ("tail", "prefix", "salvage")
NOTHING_HAPPENED = (
    "Nothing was written.",
    "Nothing was changed.",
    "The file was left as it is.",
    "Nothing of this call was stored, and every record before it is kept.",
)

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="POSIX's files and permissions")


def check_words(error: CheckpointError, *facts: str, advice: str) -> None:
    """Check that the error says what is true, what happened to the data, and what to do."""
    words = str(error)
    assert all(fact in words for fact in facts), words
    assert sum(sentence in words for sentence in NOTHING_HAPPENED) == 1, words
    what_to_do = words.rpartition(next(s for s in NOTHING_HAPPENED if s in words))[2]
    assert advice in what_to_do or (not what_to_do and advice in words), words


def read_all(ckpt: Checkpointer) -> None:
    list(ckpt.records())


def enter(ckpt: Checkpointer) -> None:
    with ckpt:
        pass


Calls = dict[str, Callable[[Checkpointer], object]]

READS: Calls = {
    "last_record": lambda ckpt: ckpt.last_record,
    "records": read_all,
    "at": lambda ckpt: ckpt.at(1),
}
WRITES: Calls = {"save": lambda ckpt: ckpt.save("new")}


def refusals(path: Path, calls: Calls, **options: Any) -> list[Any]:
    """Return the error of each of *calls* on *path*; each has to fail and to change nothing."""
    folder = path.parent
    before = snapshot(folder)
    errors = []
    for name, call in calls.items():
        ckpt = Checkpointer(path, **options)
        with pytest.raises(CheckpointError) as caught:
            call(ckpt)
        ckpt.close()
        assert snapshot(folder) == before, f"{name} changed something"
        errors.append(caught.value)
    return errors
