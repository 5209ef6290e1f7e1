"""What does not hold yet. A test that is marked here and passes is an error: take the mark away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from agent_checkpoint import CheckpointError


def not_yet(reason: str) -> Any:
    expected = (AssertionError, CheckpointError)
    return pytest.mark.xfail(strict=True, raises=expected, reason=reason)


def but_for(names: Iterable[str], exceptions: Iterable[str], reason: str) -> list[Any]:
    """Return *names* as parameters; for the *exceptions* among them the test does not hold yet."""
    marked = set(exceptions)
    assert marked <= set(names)
    return [pytest.param(name, marks=not_yet(reason)) if name in marked else name for name in names]
