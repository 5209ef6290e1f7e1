"""The command line of the demo and its exit status."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agent_checkpoint.demo.audit import LogMismatchError, check, read_turns
from agent_checkpoint.demo.play import AgentEndedError, Kill, Play
from agent_checkpoint.demo.stage import Stage
from agent_checkpoint.demo.story import STORY, shortened

AGENT = (sys.executable, "-m", "agent_checkpoint.demo.agent")

_WHOLE, _BROKEN, _USAGE, _INTERRUPTED, _NO_READER = 0, 1, 2, 130, 141
_LOG = "run.jsonl"
_SHORTEST = 3
_SLOWEST = 60
_SECONDS_PER_CALL = 0.25


def main(arguments: Sequence[str] | None = None, *, agent: Sequence[str] = AGENT) -> int:
    """Run the demo with *arguments* and *agent* and return its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        log = _new_log(options.dir)
    except OSError as error:
        parser.error(f"no log can be put there: {error}. Choose another folder with --dir.")
    try:
        return _perform(log, options.turns, options.pace, agent)
    except KeyboardInterrupt:
        _complain(f"interrupted, and the agent killed. The turns so far are in {log}")
        return _INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more on its way out and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NO_READER


def kills_for(turns: int) -> tuple[Kill, Kill]:
    """Choose two moments in a story of so many *turns*: in a call, and later after a save."""
    in_call = max(2, turns * 13 // 30)
    return Kill(in_call, in_call=True), Kill(max(in_call, turns * 22 // 30), in_call=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent_checkpoint.demo",
        description="Run a scripted agent, kill it twice, and count what that costs.",
        epilog="Exit status: 0 if the log holds every turn once and in order, else 1;"
        " 2 for a usage error, 130 after Ctrl-C, 141 if nobody reads the output.",
    )
    parser.add_argument("--dir", type=Path, help="folder for the log (default: a fresh one)")
    parser.add_argument(
        "--turns",
        type=int,
        choices=range(_SHORTEST, len(STORY) + 1),
        metavar=f"{_SHORTEST}..{len(STORY)}",
        default=len(STORY),
        help="length of the story (default: %(default)s)",
    )
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--pace",
        type=_seconds,
        metavar="SECONDS",
        default=_SECONDS_PER_CALL,
        help="how long a model call takes (default: %(default)s)",
    )
    pace.add_argument("--fast", action="store_const", dest="pace", const=0.0, help="no delays")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= _SLOWEST:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {_SLOWEST} seconds")
    return value


def _new_log(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="agent-checkpoint-demo-"), _LOG)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / _LOG
    if log.exists():
        raise FileExistsError(f"{log} holds a run already, which was left as it is")
    return log


def _perform(log: Path, turns: int, seconds_per_call: float, agent: Sequence[str]) -> int:
    """Perform the play, look at what it left in *log*, and return the exit status."""
    stage = Stage(sys.stdout)
    story = shortened(turns)
    play = Play(stage, agent, log, story, seconds_per_call=seconds_per_call)
    stage.opening(turns)
    try:
        play.perform(kills_for(turns))
        check(read_turns(log), story)
    except (AgentEndedError, LogMismatchError) as error:
        _complain(f"{error}. The log was left as it is: {log}")
        return _BROKEN
    stage.closing(play.bill, log, turns)
    return _WHOLE


def _complain(text: str) -> None:
    print(f"\ndemo: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
