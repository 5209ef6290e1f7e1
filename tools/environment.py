"""The project's virtual environments: made when missing, renewed when out of date, else left alone.

python3 tools/environment.py test         .venv with the package, editable, and its test extra
python3 tools/environment.py dev          the same with the dev extra
python3 tools/environment.py --empty DIR  a new environment in DIR with nothing in it
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 9)

_WHO_ARE_YOU = """
import json, platform, sys
print(json.dumps({
    "implementation": platform.python_implementation(),
    "minor": sys.version_info[:2],
    "version": platform.python_version(),
    "path": getattr(sys, "_base_executable", None) or sys.executable,
}))
"""


class SetupError(Exception):
    """An environment could not be made. What it says is meant for the person at the keyboard."""


@dataclass(frozen=True)
class Interpreter:
    """A Python that answered when it was run."""

    path: str
    version: str

    @property
    def minor(self) -> str:
        """Its version as in ``3.12``."""
        return ".".join(self.version.split(".")[:2])


def interpreter_at(candidate: str) -> Interpreter | None:
    """Run *candidate* and return it if it is a CPython of 3.9 or later."""
    try:
        answer = subprocess.run(
            [candidate, "-I", "-c", _WHO_ARE_YOU],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=30,
        )
        facts = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if facts["implementation"] != "CPython" or tuple(facts["minor"]) < OLDEST:
        return None
    return Interpreter(facts["path"], facts["version"])


def this_interpreter() -> Interpreter:
    """Return the Python that runs this program; inside a virtual environment, the one below it."""
    found = interpreter_at(sys.executable)
    if found is None:
        raise SetupError(
            f"{sys.executable} is {platform.python_implementation()} {platform.python_version()};"
            " the project needs CPython 3.9 or later. Nothing was changed."
            " Name another one: make PYTHON=python3.12 ..."
        )
    return found


def prepare(place: Path, base: Interpreter, extra: str) -> Path:
    """Bring the environment at *place* up to date with *extra* and return its Python."""
    python = _python_in(place)
    made = _Stamp(place / ".made", [str(ROOT), base.path, base.version])
    installed = _Stamp(place / f".installed-{extra}", [_digest(ROOT / "pyproject.toml")])
    if made.holds() and python.exists() and installed.holds():
        return python

    print(f"Setting up {_shown(place)}: Python {base.version}, extra {extra}", flush=True)
    if not (made.holds() and python.exists()):
        create(place, base)
        made.write()
    _install(python, extra)
    installed.write()
    return python


def create(place: Path, base: Interpreter) -> None:
    """Make a new environment at *place*, with pip and nothing else, in place of what was there."""
    shutil.rmtree(place, ignore_errors=True)
    by_venv = _run([base.path, "-m", "venv", str(place)])
    if by_venv.returncode == 0:
        return

    # Debian's python3 has no ensurepip until python3-venv is installed. virtualenv brings its
    # own pip, and --target is allowed where a distribution forbids installing into its Python.
    shutil.rmtree(place, ignore_errors=True)
    tools = ROOT / ".venv-tools" / ".".join(map(str, sys.version_info[:2]))
    if not (tools / "virtualenv").is_dir():
        print(f"{base.path} has no working venv; taking virtualenv instead", flush=True)
        into_tools = ["install", "--target", str(tools), "virtualenv"]
        _run_or_say_why(_pip(sys.executable, *into_tools), also=by_venv.stdout)
    _run_or_say_why(
        [sys.executable, "-m", "virtualenv", "--quiet", "--python", base.path, str(place)],
        also=by_venv.stdout,
        adding={"PYTHONPATH": str(tools)},
    )


def _install(python: Path, extra: str) -> None:
    # Early releases of 3.9 and 3.10 bring a pip that cannot install an editable pyproject.
    _run_or_say_why(_pip(str(python), "install", "pip>=21.3"))
    _run_or_say_why(_pip(str(python), "install", "--editable", f".[{extra}]"))


def _pip(python: str, command: str, *arguments: str) -> list[str]:
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
    return [python, "-m", "pip", command, *quiet, *arguments]


def _run(
    command: list[str], adding: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    # A user's wish for --user installs breaks both --target and virtual environments.
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PIP_USER": "0", **(adding or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _run_or_say_why(
    command: list[str], *, also: str = "", adding: Mapping[str, str] | None = None
) -> None:
    done = _run(command, adding)
    if done.returncode != 0:
        raise SetupError(
            f"{also}{done.stdout}\n"
            f"This command ended with {done.returncode}: {' '.join(command)}\n"
            "The environment is incomplete. Mend what the lines above name (often the network or"
            " pip's settings) and run make again; it goes on from here."
        )


class _Stamp:
    """A file in an environment that says from what it was made."""

    def __init__(self, path: Path, facts: list[str]) -> None:
        self._path, self._text = path, "\n".join(facts)

    def holds(self) -> bool:
        try:
            return self._path.read_text(encoding="utf-8") == self._text
        except OSError:
            return False

    def write(self) -> None:
        self._path.write_text(self._text, encoding="utf-8")


def _python_in(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _shown(place: Path) -> str:
    return os.path.relpath(place, ROOT)


def main() -> int:
    """Prepare what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("extra", nargs="?", choices=["test", "dev"])
    what.add_argument("--empty", type=Path, metavar="DIR")
    options = parser.parse_args()

    try:
        if options.empty:
            create(options.empty.absolute(), this_interpreter())
        else:
            prepare(ROOT / ".venv", this_interpreter(), options.extra)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
