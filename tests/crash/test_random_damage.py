"""Any damage at all: what is shown was written, what is whole is not dropped, nothing else is said.

The sweeps beside this one hurt each byte in one way; here logs are hurt in several ways at once.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import Checkpointer, CheckpointError, NewerFormatError, NotALogError
from tests.logs import FULL, NEW, Log, Seen, build, folder_in_memory, put, seen, snapshot

LOGS = 12_000 if FULL else 1_200
MODES = ("tail", "prefix", "salvage")
HURTS = (
    "flip", "byte", "cut", "head", "put in", "double", "drop", "swap", "hole", "sector",
    "tail of NULs", "blanks", "garbage", "more", "newline",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with folder_in_memory(tmp_path_factory.mktemp("damage")) as folder:
        yield folder


def random_log(dice: random.Random) -> Log:
    states: list[Any] = []
    for number in range(dice.randint(1, 7)):
        kind = dice.randrange(5)
        if kind == 0:
            states.append("y" * dice.choice((10, 400, 600, 1500, 5000)))
        elif kind == 1:
            states.append({"text": "\u00e9\u6f22\n\0" * dice.randint(1, 30), "number": number})
        elif kind == 2 and states:  # an agent that keeps a log of logs
            states.append({"log": build(states).content.decode(), "number": number})
        else:
            states.append({"n": dice.randrange(10**9), "list": [1.5, None, True, "@ @"]})
    return build(states, ts=lambda index: 1716566401.5 + index)


def hurt(dice: random.Random, content: bytes) -> bytes:
    """Return *content* with one to three things done to it that disks, editors and people do."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        if not content:
            break
        size = len(content)
        at = dice.randrange(size) if dice.random() < 0.6 else max(0, size - 1 - dice.randrange(120))
        lines = content.split(b"\n")
        here, there = dice.randrange(len(lines)), dice.randrange(len(lines))
        what = dice.choice(HURTS)
        if what == "flip":
            content = (
                content[:at] + bytes((content[at] ^ 1 << dice.randrange(8),)) + content[at + 1 :]
            )
        elif what == "byte":
            content = content[:at] + bytes((dice.randrange(256),)) + content[at + 1 :]
        elif what == "cut":
            content = content[:at]
        elif what == "head":
            content = content[at:]
        elif what == "put in":
            content = content[:at] + dice.choice((b"x", b"\n", b"\0", b"\r", b"}")) + content[at:]
        elif what == "hole":
            length = dice.choice((1, 2, 7, 100))
            content = content[:at] + bytes(min(length, size - at)) + content[at + length :]
        elif what == "sector":
            start = at // 512 * 512
            content = content[:start] + bytes(min(512, size - start)) + content[start + 512 :]
        elif what == "tail of NULs":
            length = dice.randint(1, min(size, 700))
            content = content[: size - length] + bytes(length)
        elif what == "blanks":
            content += dice.choice((b" ", b"\n", b"\r\n", b"  \n", b"\t", b"\n\n"))
        elif what == "garbage":
            content += bytes(dice.randrange(256) for _ in range(dice.randint(1, 30))) + dice.choice(
                (b"", b"\n")
            )
        elif what == "more":
            content += bytes(dice.choice((1, 10, 512, 4096))) + dice.choice((b"", b"\n", b"abc"))
        elif what == "newline":
            content = content.replace(b"\n", bytes((10 ^ 1 << dice.randrange(8),)), 1)
        else:
            if what == "double":
                lines.insert(there, lines[here])
            elif what == "drop":
                del lines[here]
            else:
                lines[here], lines[there] = lines[there], lines[here]
            content = b"\n".join(lines)
    return content


def whole_in(log: Log, content: bytes) -> list[Seen]:
    """Return the records of *log* whose lines stand in *content* as lines, whole."""
    lines = set(content.split(b"\n"))
    return [record for line, record in zip(log.lines, log.records) if line[:-1] in lines]


def read(path: Path, mode: str) -> tuple[list[Seen], CheckpointError | None]:
    shown: list[Seen] = []
    try:
        for record in Checkpointer(path, recover=mode, readonly=True).records():
            shown += seen([record])
    except CheckpointError as error:
        return shown, error
    return shown, None


def check(folder: Path, log: Log, content: bytes) -> None:
    path = folder / "run.jsonl"
    put(path, content)
    untouched = snapshot(folder)
    report = Checkpointer(path).verify()
    shown, error = read(path, "tail")
    whole = whole_in(log, content)

    assert shown == log.records[: len(shown)]
    assert report.records == len(shown)
    assert (report.damage is None) == (error is None)
    if error is None:
        assert all(record in shown for record in whole), "dropped as torn"
        last = Checkpointer(path).last_record
        assert seen([last] if last else []) == shown[-1:]
    for mode in MODES:
        kept, refused = (shown, error) if mode == "tail" else read(path, mode)
        assert snapshot(folder) == untouched, "reading changed something"
        if mode != "tail" and refused is not None:
            assert isinstance(refused, (NewerFormatError, NotALogError))
        elif mode == "prefix":
            assert kept == shown
        elif mode == "salvage":
            assert all(record in log.records for record in kept)
            assert all(record in kept for record in whole)
        check_a_save(path, content, mode, kept=kept, refused=refused)


def check_a_save(path: Path, content: bytes, mode: str, *, kept: list[Seen], refused: Any) -> None:
    ckpt = Checkpointer(path, recover=mode, durability="flush")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved = ckpt.save(NEW)
    except CheckpointError:
        assert refused is not None
        assert snapshot(path.parent) == {"run.jsonl": content}
    else:
        if refused is None:
            assert seen(Checkpointer(path).records()) == [*kept, (saved.seq, saved.turn, NEW)]
            assert Checkpointer(path).verify().ok
        aside = path.with_name("run.jsonl.damaged-1")
        if aside.exists():
            assert aside.read_bytes() == content
            aside.unlink()
        assert [each.name for each in path.parent.iterdir()] == ["run.jsonl"]
    finally:
        ckpt.close()
    put(path, content)


@pytest.mark.parametrize("part", range(4))
def test_what_is_shown_was_written_and_what_is_whole_is_not_dropped(folder, part):
    for seed in range(part, LOGS, 4):
        dice = random.Random(seed)
        log = random_log(dice)
        content = hurt(dice, log.content)
        try:
            check(folder, log, content)
        except Exception as problem:
            raise AssertionError(f"seed {seed}: {problem!r}") from problem
