"""Run the tests on this Python, then on every other CPython from 3.9 to 3.14 of this machine.

The others run with CHECKPOINT_TESTS=quick, which shortens the sweeps. What stands after `--` is
pytest's. The last line adds up all runs; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from environment import ROOT, Interpreter, SetupError, interpreter_at, prepare, this_interpreter

OTHERS = [f"3.{minor}" for minor in range(9, 15)]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CLOSING_LINE = re.compile(r"^=*\s*(no tests ran|\d+ [a-z]+(, \d+ [a-z]+)*) in \d.*$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How the tests went on one Python."""

    title: str
    closing_line: str
    passed: int
    failed: int


def outcome(title: str, output: str, exit_code: int) -> Outcome:
    """Read pytest's *output*; an exit code that its closing line hides counts as a failure."""
    lines = [line.group() for line in _CLOSING_LINE.finditer(_COLOUR.sub("", output))]
    closing_line = lines[-1] if lines else f"pytest ended with {exit_code} and no closing line"
    passed = _number_of("passed", closing_line)
    failed = _number_of("failed", closing_line) + _number_of("errors?", closing_line)
    if exit_code != 0:
        failed = max(failed, 1)
    return Outcome(title, closing_line, passed, failed)


def candidates() -> Iterable[str]:
    """Yield the paths at which an interpreter may be, most wanted first."""
    for folder in os.get_exec_path():
        for minor in OTHERS:
            path = Path(folder, f"python{minor}")
            if path.exists():
                yield str(path)
    pyenv_roots = [os.environ.get("PYENV_ROOT", ""), os.path.expanduser("~/.pyenv")]
    for root in dict.fromkeys(filter(None, pyenv_roots)):
        installed = Path(root, "versions").glob("*/bin/python")
        yield from map(str, sorted(installed, key=_pyenv_version, reverse=True))


def one_of_each(paths: Iterable[str], *, besides: Interpreter) -> list[Interpreter]:
    """Run each of *paths* and keep the first that works of every version but that of *besides*.

    A path that exists proves nothing: pyenv leaves a shim for every version that it ever had.
    """
    found: dict[str, Interpreter] = {}
    for path in paths:
        interpreter = interpreter_at(path)
        if interpreter and interpreter.minor in OTHERS and interpreter.minor != besides.minor:
            found.setdefault(interpreter.minor, interpreter)
    return [found[minor] for minor in OTHERS if minor in found]


def run(interpreter: Interpreter, place: Path, extent: str, pytest_arguments: list[str]) -> Outcome:
    """Prepare *place*, run pytest in it, show its output while it runs and return how it went."""
    title = f"Python {interpreter.version}, {extent}"
    print(f"\n---- {title}", flush=True)
    try:
        python = prepare(place, interpreter, "test")
    except SetupError as error:
        print(error, flush=True)
        return Outcome(title, "not run: its environment could not be set up", 0, 1)

    colour = ["--color=yes"] if sys.stdout.isatty() else []
    with subprocess.Popen(
        # Unbuffered, or the dots arrive all at once.
        [str(python), "-u", "-m", "pytest", "-n", "2", *colour, *pytest_arguments],
        cwd=ROOT,
        env={**os.environ, "CHECKPOINT_TESTS": extent},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        output = bytearray()
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            output += chunk
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    return outcome(title, output.decode("utf-8", "replace"), process.returncode)


def _number_of(word: str, closing_line: str) -> int:
    found = re.search(rf"(\d+) {word}\b", closing_line)
    return int(found.group(1)) if found else 0


def _pyenv_version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parent.parent.name)]


def main() -> int:
    """Run the suite as the command line asks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--main-only", action="store_true", help="leave the other Pythons out")
    parser.add_argument("--quick", action="store_true", help="shorten the sweeps here as well")
    parser.add_argument("pytest_arguments", nargs="*", help="passed on to pytest, after --")
    options = parser.parse_args()

    try:
        main_one = this_interpreter()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    extent = "quick" if options.quick else "full"
    outcomes = [run(main_one, ROOT / ".venv", extent, options.pytest_arguments)]
    if not options.main_only:
        outcomes += [
            run(other, ROOT / ".venvs" / other.minor, "quick", options.pytest_arguments)
            for other in one_of_each(candidates(), besides=main_one)
        ]

    print("\n---- All runs")
    for each in outcomes:
        print(f"{each.title}:\n{each.closing_line}")
    failed = sum(each.failed for each in outcomes)
    print(f"{sum(each.passed for each in outcomes)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
