"""A log cut at any byte, as a crash in the middle of a write leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_checkpoint import Checkpointer
from tests.logs import (
    FULL,
    Log,
    build,
    check_recovery,
    folder_in_memory,
    mixed,
    plain,
    seen,
    snapshot,
    steps,
)

# What str.splitlines() takes for the end of a line, and characters of two, three and four bytes.
UNICODE = 'a\u2028b\u2029c\u0085d\x0b\x0c\x1c\r\ne é ☃ 😀 \0 " \\ \x7f'
STATES = [
    7,
    {"text": "x" * 4096},
    {"text": "y" * 4096},
    {"text": UNICODE, UNICODE: [UNICODE] * 12},
    "",
    {"text": "é" * 3072},
    [1.5, 2**70, True, None, {"sum": "1:1:57:00000000:9d0c2c1b"}, {}],
]
OVER_64_KB = [1, {"text": UNICODE * 200 + "z" * 55_000}, 2]
BIG_STATES = [1, {"text": "x" * 4096}, {"text": UNICODE * 2500}, 2, {"text": "z" * 70_000}]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with folder_in_memory(tmp_path) as folder:
        yield folder


def near_the_ends_of_lines(log: Log) -> list[int]:
    return [end + n for end in log.ends for n in range(-60, 20)]


def check_cuts(folder: Path, log: Log, offsets: list[int]) -> None:
    content = log.content
    for offset in offsets:
        number, end = log.whole_in(offset)
        kept = log.records[:number]
        check_recovery(folder / "run.jsonl", content[:offset], kept, end, f"cut at {offset}")
    assert list(snapshot(folder)) == ["run.jsonl"]


def test_the_log_that_is_cut_is_what_the_package_writes(tmp_path):
    path = tmp_path / "run.jsonl"
    with Checkpointer(path, durability="flush") as ckpt:
        saved = [ckpt.save(state) for state in STATES + BIG_STATES]

    content = path.read_bytes()

    stamped = build(STATES + BIG_STATES, ts=lambda index: saved[index].ts)
    assert content == stamped.content
    assert seen(saved) == stamped.records
    assert 15_000 < len(build(STATES).content) < 20_000
    assert all(len(line) > 64 * 1024 for line in build(BIG_STATES).lines[2::2])


@pytest.mark.parametrize("part", range(4))
def test_a_cut_at_any_byte_costs_only_the_record_it_goes_through(folder, part):
    log = build(STATES)
    offsets = steps(len(log.content), quick=41, keep=near_the_ends_of_lines(log)[::3])

    check_cuts(folder, log, offsets[part::4])


@pytest.mark.parametrize("make", [plain, mixed])
def test_a_cut_at_any_byte_costs_one_record_also_where_lines_have_no_sum(folder, make):
    log = make([state for state in STATES if len(str(state)) < 2000])
    offsets = steps(len(log.content), quick=19, keep=near_the_ends_of_lines(log)[::3])

    check_cuts(folder, log, offsets)


@pytest.mark.parametrize("part", range(16))
def test_a_cut_at_any_byte_of_a_record_over_64_kb_costs_only_that_record(folder, part):
    log = build(OVER_64_KB)
    offsets = steps(len(log.content), quick=997, keep=near_the_ends_of_lines(log)[::7])

    assert max(map(len, log.lines)) > 64 * 1024
    check_cuts(folder, log, offsets[part::16])


def test_a_cut_in_lines_longer_than_the_tail_that_is_read_costs_one_record(folder):
    log = build(BIG_STATES)
    whole = len(log.content)
    chunks = [whole - 65536 * n + m for n in (1, 2) for m in (-1, 0, 1)]
    offsets = {*near_the_ends_of_lines(log), *chunks, *range(0, whole, 211)}
    wanted = sorted(n for n in offsets if 0 <= n <= whole)

    check_cuts(folder, log, wanted if FULL else wanted[::29])
