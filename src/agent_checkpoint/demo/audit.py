"""The demo's judge: reads the log as plain JSON lines, without the library that wrote it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agent_checkpoint.demo.story import Message, Step, conversation


class LogMismatchError(Exception):
    """A line of the log is not what an unbroken run would have written there."""

    def __init__(self, line: int, found: str) -> None:
        super().__init__(line, found)
        self.line, self.found = line, found

    def __str__(self) -> str:
        return f"line {self.line} of the log {self.found}"


class Turn(NamedTuple):
    """One line of the log, as far as the demo looks at it."""

    turn: int
    messages: list[Message]


def read_turns(log: Path) -> list[Turn]:
    """Return the lines of *log*, none if there is no log yet."""
    lines = log.read_bytes().splitlines() if log.exists() else []
    return [_turn(number, line) for number, line in enumerate(lines, start=1)]


def check(turns: Sequence[Turn], story: Sequence[Step]) -> None:
    """Raise LogMismatchError unless *turns* are all of *story*, each once and in order."""
    for number, (turn, messages) in enumerate(turns, start=1):
        if turn != number:
            raise LogMismatchError(number, f"holds turn {turn}")
        if number > len(story):
            raise LogMismatchError(number, "comes after the end")
        if messages != conversation(story[:number]):
            raise LogMismatchError(number, f"does not hold the conversation up to turn {number}")
    if len(turns) < len(story):
        raise LogMismatchError(len(turns) + 1, "is missing")


def _turn(number: int, line: bytes) -> Turn:
    try:
        record = json.loads(line)
        return Turn(record["turn"], record["data"]["messages"])
    except (ValueError, KeyError, TypeError) as error:
        raise LogMismatchError(number, "is not a record with a turn and messages") from error
