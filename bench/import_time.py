"""Row: ``import agent_checkpoint``, and what it loads."""

from __future__ import annotations

import json
import platform
import resource
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple, cast

from environment import Interpreter
from suite import candidates, one_of_each

from bench.fresh import started
from bench.row import AT_MOST, UNDER, Demand, Fact, Figure, Measured, Row, Setting
from bench.stats import median, millis, spread

TIME = Demand("import agent_checkpoint", UNDER, 30, "ms")
FOREIGN = Demand("modules it loads from outside the standard library", AT_MOST, 0, "modules")

CHILD = Path(__file__).with_name("import_process.py")


class Spent(NamedTuple):
    """The time on the clock and on the processor, in nanoseconds."""

    wall_ns: int
    cpu_ns: int


def _cpu_of_children_ns() -> int:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((spent.ru_utime + spent.ru_stime) * 1e9)


class Starter:
    """One interpreter, started over and over."""

    def __init__(self, executable: str, setting: Setting) -> None:
        # Compiled files of several interpreters are not left in the source folder.
        cache = f"pycache_prefix={setting.folder / 'compiled'}"
        self._alone = [executable, "-I", "-S", "-X", cache, "-c"]
        self._with_site = [executable, "-I", "-X", cache, str(CHILD), str(setting.source)]
        # Every interpreter that is not started with -S has loaded os before the program begins.
        self._path = f"import os, sys; sys.path.insert(0, {str(setting.source)!r})"

    def _process(self, code: str) -> Spent:
        cpu, begun = _cpu_of_children_ns(), perf_counter_ns()
        started([*self._alone, code])
        return Spent(perf_counter_ns() - begun, _cpu_of_children_ns() - cpu)

    def import_alone(self, times: int) -> list[Spent]:
        """Time whole processes that import, minus whole processes that do not, in pairs."""
        bare_code, full_code = self._path, self._path + "; import agent_checkpoint"
        self._process(full_code)
        apart: list[Spent] = []
        for number in range(times):
            if number % 2:
                full, bare = self._process(full_code), self._process(bare_code)
            else:
                bare, full = self._process(bare_code), self._process(full_code)
            apart.append(Spent(full.wall_ns - bare.wall_ns, full.cpu_ns - bare.cpu_ns))
        return apart

    def answer(self) -> dict[str, Any]:
        """Return what a process that imports says of itself."""
        return cast("dict[str, Any]", json.loads(started(self._with_site)))


def _interpreters() -> list[Interpreter]:
    """Find this interpreter and one of every other version that the suite runs on."""
    # The one below a virtual environment would not see what is installed in it.
    here = Interpreter(sys.executable, platform.python_version())
    return [here, *one_of_each(candidates(), besides=here)]


def _measure(setting: Setting) -> Measured:
    times = 10 if setting.quick else 40
    slowest_ns = 0.0
    foreign: set[str] = set()
    facts: list[Fact] = []
    for interpreter in _interpreters():
        setting.say(f"Python {interpreter.version}, {times} times")
        one = Starter(interpreter.path, setting)
        apart = one.import_alone(times)
        wall_ns = [spent.wall_ns for spent in apart]
        cpu_ns = [spent.cpu_ns for spent in apart]
        answers = [one.answer() for _ in range(times // 4)]
        inside_ns = [found["took_ns"] for found in answers]
        foreign.update(name for found in answers for name in found["foreign"])
        slowest_ns = max(slowest_ns, median(wall_ns))
        facts.append(
            Fact(
                f"Python {interpreter.version}: process with minus process without, p50",
                f"{millis(median(wall_ns))} ({spread([ns / 1e6 for ns in wall_ns], 1)});"
                f" of the processor's time {millis(median(cpu_ns))};"
                f" the import statement alone after site {millis(median(inside_ns))},"
                f" {len(answers[0]['loaded'])} modules",
            )
        )
    return Measured(
        figures=(
            Figure(TIME, slowest_ns / 1e6, "the slowest interpreter"),
            Figure(FOREIGN, len(foreign), ", ".join(sorted(foreign)) or "none"),
        ),
        facts=tuple(facts),
    )


ROW = Row(
    name="import",
    title="Import",
    method=(
        "A fresh interpreter that imports the package, minus one that does not, in turn, both with"
        " `-I -S` and `os` loaded, compiled files present; the median, for each interpreter of the"
        " machine. The list of modules is taken with `site`, so that an optional import would show."
    ),
    demands=(TIME, FOREIGN),
    measure=_measure,
)
