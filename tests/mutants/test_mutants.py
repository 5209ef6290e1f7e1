"""Bugs seeded on purpose: each is noticed by a test, or the test is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.mutations import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
FULL = os.environ.get("CHECKPOINT_TESTS", "quick") == "full"
PACKAGE = "agent_checkpoint"
TESTS_FAILED = 1  # of pytest's exit codes: not an error in collecting, nor an empty selection

in_full_only = pytest.mark.skipif(not FULL, reason="CHECKPOINT_TESTS is not full")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the killers need POSIX")


def copied_sources(folder: Path) -> Path:
    """Copy the sources, without what Python has cached of them."""
    shutil.copytree(
        ROOT / "src" / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


def mutated(mutant: Mutant) -> str:
    """Return the source with the bug in it."""
    text = (ROOT / "src" / PACKAGE / mutant.file).read_text(encoding="utf-8")
    places = text.count(mutant.old)
    assert places == 1, f"the text to replace stands in {mutant.file} {places} times, not once"
    return text.replace(mutant.old, mutant.new)


def run(killers: list[str], sources: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests *killers* on the package in *sources*."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, f"--basetemp={folder / 'tests'}", *killers],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(sources), "CHECKPOINT_TESTS": "quick"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def ids_of(mutant: Mutant) -> list[str]:
    """Return the ids of the killers; the table may leave the end of a long name out."""
    ids = []
    for killer in mutant.killers:
        file, beginning = killer.split("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        names = [line[4:].split("(")[0] for line in text.splitlines() if line.startswith("def ")]
        found = [name for name in names if name.startswith(beginning)]
        assert len(found) == 1, f"{killer} is the beginning of {len(found)} tests, not of one"
        ids.append(f"{file}::{found[0]}")
    return ids


each_mutant = pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])


@each_mutant
def test_a_mutation_fits_the_source_and_its_killers_exist(mutant: Mutant) -> None:
    compile(mutated(mutant), mutant.file, "exec")

    assert ids_of(mutant)


@in_full_only
def test_the_killers_find_nothing_wrong_with_the_source_as_it_is(tmp_path: Path) -> None:
    killers = sorted({killer for mutant in MUTANTS for killer in ids_of(mutant)})
    sources = copied_sources(tmp_path / "src")
    where = tmp_path / "test_where.py"
    where.write_text(
        f"import agent_checkpoint\ndef test_where():\n"
        f"    assert agent_checkpoint.__file__.startswith({str(sources)!r})\n"
    )

    done = run([str(where), *killers], sources, tmp_path)

    assert done.returncode == 0, done.stdout


@in_full_only
@each_mutant
def test_a_seeded_bug_is_noticed(tmp_path: Path, mutant: Mutant) -> None:
    sources = copied_sources(tmp_path / "src")
    (sources / PACKAGE / mutant.file).write_text(mutated(mutant), encoding="utf-8")

    done = run(ids_of(mutant), sources, tmp_path)

    assert done.returncode == TESTS_FAILED, f"it survived: {done.stdout}"
