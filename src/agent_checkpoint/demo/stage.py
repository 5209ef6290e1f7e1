"""What the demo prints: lines of at most 80 columns, in colour only where colour is wanted."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from agent_checkpoint.demo.bill import Bill, Sum
from agent_checkpoint.demo.model import PRICE_IN, PRICE_OUT

_TEXT_COLUMNS = 46
_TOOL_COLUMNS = 18
_INDENT = " " * 6

# Lines of the agent, as they stand there.
LAST_RECORD = "last = ckpt.last_record"
MESSAGES = 'messages = last.data["messages"]'

_BOLD, _DIM, _RED, _GREEN, _CYAN = "1", "2", "1;31", "32", "36"
_KILLED = "1;37;41"


def wants_colour(out: TextIO, environment: Mapping[str, str]) -> bool:
    """Tell whether *out* should get colours: NO_COLOR, then FORCE_COLOR, then a terminal."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    # An old Windows console prints escape codes as they are; Windows Terminal sets WT_SESSION.
    return out.isatty() and (sys.platform != "win32" or "WT_SESSION" in environment)


def dollars(millionths: int) -> str:
    """Write a price; *millionths* of a dollar is how the demo counts."""
    return f"${millionths / 1e6:.4f}"


class Stage:
    """Prints the demo to *out*."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colour = wants_colour(out, os.environ)
        self._column = 0
        self._headline_ended = False

    def opening(self, turns: int) -> None:
        """Say what is about to be seen."""
        goal = f"An agent hunts a bug in {turns} turns, each saved before the next begins."
        price = f"Its price: ${PRICE_IN} for a million tokens in, ${PRICE_OUT} for a million out."
        self._line(goal, _BOLD)
        self._line("Twice it is killed without warning. The model is a script: no key, no network.")
        self._line(price)
        self._line()
        columns = f"{'what the model says':<{_TEXT_COLUMNS}}  {'tool called':<{_TOOL_COLUMNS}}"
        self._line(f"turn  {columns}    cost", _DIM)

    def agent_opened_log(self, pid: int, last_turn: int, messages: int) -> None:
        """Say what a new agent process found in the log, by which lines of its code."""
        self._line(f"{_INDENT}process {pid} starts", _CYAN)
        if last_turn:
            self._found(LAST_RECORD, f"last record: turn {last_turn}")
            self._found(MESSAGES, f"{messages} messages, on to turn {last_turn + 1}")
        else:
            self._found(LAST_RECORD, "None: a new log")

    def turn_begins(self, turn: int) -> None:
        """Begin the line of *turn*."""
        self._put(f"{turn:>4}  ", _GREEN)
        self._column, self._headline_ended = 0, False

    def model_says(self, words: str) -> None:
        """Show *words* as they arrive, up to the end of the first line."""
        if self._headline_ended:
            return
        shown, newline, _ = words.partition("\n")
        self._headline_ended = bool(newline)
        self._put(shown)
        self._column += len(shown)

    def turn_ends(self, tool: str, cost: int) -> None:
        """End the line with the *tool* that was called and the *cost* so far."""
        self._put(" " * (_TEXT_COLUMNS - self._column))
        self._put(f"  {tool:<{_TOOL_COLUMNS}}", _DIM)
        self._line(f" {dollars(cost)}")

    def killed_in_call(self, pid: int, how: str, turn: int, price: int) -> None:
        """Break the line of *turn* off and say what the kill cost."""
        self._line("...")
        self._killed(f"process {pid} by {how}, in the middle of call {turn}")
        self._line(f"{_INDENT}lost: the answer so far, {dollars(price)}; call {turn} is made again")

    def killed_between_calls(self, pid: int, how: str, turn: int) -> None:
        """Say that the kill came when the call of *turn* had not begun."""
        self._killed(f"process {pid} by {how}, after the save of turn {turn - 1}")
        self._line(f"{_INDENT}lost: nothing")

    def closing(self, bill: Bill, log: Path, turns: int) -> None:
        """Show what was counted, and where the log is."""
        self._line()
        self._line(f"The log holds turns 1 to {turns}, each once and in order.", _BOLD)
        self._count("model calls made", bill.made)
        self._count("  of these cut off by a kill, so made again", bill.cut_off)
        self._count("more calls, had it begun again at turn 1 each time", bill.spared)
        self._line()
        path = shlex.quote(str(log))
        self._line(f"The log, {log.stat().st_size / 1000:.0f} kB, and two ways to look at it:")
        self._line(f"  {log}")
        # Whole lines to copy, however long the path in them is.
        self._line(f"  tail -1 {path} | python3 -m json.tool", _CYAN)
        self._line(f"  jq -c '.data.messages[-2:]' {path}", _CYAN)

    def _count(self, name: str, total: Sum) -> None:
        self._put(f"  {name:<54}")
        self._put(f"{total.calls:>5}", _BOLD)
        self._line(f"{dollars(total.price):>12}")

    def _killed(self, what: str) -> None:
        self._put(_INDENT[:-1])
        self._put(" KILLED ", _KILLED)
        self._line(f" {what}", _RED)

    def _found(self, code: str, result: str) -> None:
        self._put(f"{_INDENT}{code:<{34}}", _DIM)
        self._line(result, _CYAN)

    def _line(self, text: str = "", style: str = "") -> None:
        self._put(text, style)
        self._put("\n")

    def _put(self, text: str, style: str = "") -> None:
        self._out.write(f"\x1b[{style}m{text}\x1b[0m" if self._colour and style else text)
        self._out.flush()
