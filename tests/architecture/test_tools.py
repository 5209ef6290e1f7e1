"""The programs that run the tests are believed when they say that all is well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from environment import Interpreter, interpreter_at, this_interpreter
from suite import one_of_each, outcome


def shim(folder: Path, text: str) -> str:
    """Write an executable shell script and return its path."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("output", "exit_code", "passed", "failed"),
    [
        ("...\n==== 3 passed in 0.12s ====\n", 0, 3, 0),
        ("\x1b[32m=== \x1b[1m3 passed\x1b[0m, 1 skipped in 71.30s (0:01:11) ===\x1b[0m\n", 0, 3, 0),
        ("=== 1 failed, 2 passed, 3 errors, 1 xfailed in 0.12s ===\n", 1, 2, 4),
        ("=== 1 error in 0.12s ===\n", 2, 0, 1),
        ("3 passed in 0.12s\n", 0, 3, 0),
        ("=== 3 passed in 0.12s ===\n", 1, 3, 1),
        ("=== no tests ran in 0.00s ===\n", 5, 0, 1),
        ("Fatal Python error: Segmentation fault\n", -11, 0, 1),
        ("a test printed: 9 passed in 1.0s\n=== 3 passed in 0.12s ===\n", 0, 3, 0),
    ],
)
def test_a_run_is_counted_as_pytest_counted_it(
    output: str, exit_code: int, passed: int, failed: int
):
    counted = outcome("Python 3.12.1, full", output, exit_code)

    assert (counted.passed, counted.failed) == (passed, failed)


def test_the_closing_line_is_kept_as_it_was():
    counted = outcome("", "collected\n=== 3 passed in 0.12s ===\n", 0)

    assert counted.closing_line == "=== 3 passed in 0.12s ==="


def test_an_interpreter_says_itself_which_one_it_is():
    assert this_interpreter().version == sys.version.split()[0]


@pytest.mark.parametrize(
    "text",
    [
        "echo 'version is not set' >&2; exit 127",
        "echo 'not a python'",
        """echo '{"implementation": "PyPy", "minor": [3, 10], "version": "3.10.1", "path": ""}'""",
        """echo '{"implementation": "CPython", "minor": [3, 8], "version": "3.8.1", "path": ""}'""",
    ],
)
def test_what_only_looks_like_an_interpreter_is_passed_over(tmp_path: Path, text: str):
    assert interpreter_at(shim(tmp_path, text)) is None


def test_a_missing_interpreter_is_passed_over(tmp_path: Path):
    assert interpreter_at(str(tmp_path / "python3.12")) is None


def test_one_working_interpreter_of_each_other_version_is_found(tmp_path: Path):
    (tmp_path / "broken").mkdir()
    broken = shim(tmp_path / "broken", "exit 127")
    me = this_interpreter()
    stranger = Interpreter("/nowhere/python", "3.99.0")

    assert one_of_each([broken, me.path, me.path], besides=stranger) == [me]
    assert one_of_each([broken, me.path], besides=me) == []
