"""The documentation's Python blocks run as printed, and its figures and names are the code's."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import agent_checkpoint
from agent_checkpoint import CheckpointError, errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks_of(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    names: dict[str, object] = {}
    for block in blocks_of(page):
        exec(compile(block, str(page), "exec"), names)


def test_the_readme_has_its_example():
    assert len(blocks_of(ROOT / "README.md")[0].strip().splitlines()) <= 15


def test_the_readme_example_goes_on_after_a_kill(tmp_path):
    example = blocks_of(ROOT / "README.md")[0]
    death = "    import os; len(messages) == 12 and os.kill(os.getpid(), 9)\n"
    dying = example.replace("    return f", death + "    return f")
    assert dying != example

    killed = subprocess.run([sys.executable, "-c", dying], cwd=tmp_path, check=False)
    lines_at_the_kill = (tmp_path / "runs/research.jsonl").read_bytes().count(b"\n")
    resumed = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=False)

    assert killed.returncode == -signal.SIGKILL
    assert lines_at_the_kill == 11
    assert resumed.returncode == 0
    records = list(agent_checkpoint.Checkpointer(tmp_path / "runs/research.jsonl").records())
    assert [record.turn for record in records] == list(range(1, 31))
    assert [len(record.data["messages"]) for record in records] == list(range(2, 32))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_names_tests_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    folder = ROOT / "tests/crash"

    named = re.findall(r"`(tests/[\w/.]+)`", text)

    assert [name for name in named if not (ROOT / name).exists()] == []
    assert all((folder / name).exists() for name in re.findall(r"`(test_\w+\.py)`", text))


def test_the_drawn_tree_of_errors_is_the_real_one():
    drawn = {}
    above = ["Exception"]
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│ ]*(?:[├└]── )?)([A-Z]\w+(?:Error|Warning))\b(?: \((\w+)\))?", line)
        if found is not None:
            depth = len(found[1]) // 4
            above[depth + 1 :] = [found[2]]
            drawn[found[2]] = [above[depth] if depth else None, found[3]]
    drawn["CheckpointError"][1] = "Exception"

    real = {
        name: ([*(base.__name__ for base in kind.__bases__)])
        for name, kind in vars(errors).items()
        if isinstance(kind, type)
    }
    assert {name: [base for base in bases if base] for name, bases in drawn.items()} == real


def test_every_error_is_public_and_every_public_name_exists():
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, (CheckpointError, Warning)):
            assert name in agent_checkpoint.__all__
    for name in agent_checkpoint.__all__:
        assert hasattr(agent_checkpoint, name)


def test_the_changelog_speaks_of_this_version():
    assert f"## {agent_checkpoint.__version__}" in (ROOT / "CHANGELOG.md").read_text()
