"""Run a piece of Python in a fresh interpreter and hear what it found, as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast


class ChildError(Exception):
    """A fresh interpreter ended with an error; the row has no figure."""

    def __init__(self, code: int, stderr: str) -> None:
        super().__init__(code, stderr)
        self.code, self.stderr = code, stderr

    def __str__(self) -> str:
        return (
            f"a fresh interpreter that measures ended with status {self.code}. No figure of this"
            f" row was taken. Its words:\n{self.stderr.strip()}"
        )


def started(command: Sequence[str]) -> str:
    """Run *command* to its end and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChildError(done.returncode, done.stderr)
    return done.stdout


def answer(script: Path, *arguments: str) -> dict[str, Any]:
    """Return what *script* prints as its last line, run with ``-I``."""
    printed = started([sys.executable, "-I", str(script), *arguments])
    return cast("dict[str, Any]", json.loads(printed.splitlines()[-1]))
