"""Processes that are started for one test, and ended with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.concurrency.actors import Child, Program, Writer

# These tests need flock, fork and signals.
collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    """Start Python on a script, or on its text, with ``program(script, *arguments)``."""
    started: list[Program] = []

    def start(script: Path | str, *arguments: object) -> Program:
        source = [str(script)] if isinstance(script, Path) else ["-c", script]
        started.append(Program([*source, *map(str, arguments)]))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()


@pytest.fixture
def writers() -> Iterator[Callable[[int], list[Writer]]]:
    """Start that many writers with ``writers(count)``."""
    started: list[Writer] = []

    def start(count: int) -> list[Writer]:
        new = [Writer() for _ in range(count)]
        started.extend(new)
        return new

    yield start
    for each in started:
        each.clean_up()


@pytest.fixture
def child() -> Iterator[Callable[[Callable[[], Any]], Child]]:
    """Fork a child that does *act* with ``child(act)``."""
    started: list[Child] = []

    def start(act: Callable[[], Any]) -> Child:
        started.append(Child(act))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()
