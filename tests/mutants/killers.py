"""Small tests for mutants that the big sweeps would take long to kill; run by test_mutants only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import (
    Checkpointer,
    CheckpointError,
    NewerFormatError,
    RecoveryWarning,
    TornTailWarning,
    UnstorableError,
)
from tests.crash.faults import SYNCS, Call, System


class Diary:
    """Notes in order what is synced and what is done, by inode."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int]] = []

    def __call__(self, call: Call) -> Any:
        done = call.do()
        if call.name in SYNCS:
            self.entries.append(("sync", os.fstat(call.args[0]).st_ino))
        elif call.name == "write":
            self.entries.append(("write", os.fstat(call.args[0]).st_ino))
        elif call.name == "replace":
            self.entries.append(("rename", os.stat(call.args[1]).st_ino))
        return done

    def has_synced(self, path: Path) -> bool:
        return ("sync", path.stat().st_ino) in self.entries


def save_noting(path: Path, **options: Any) -> Diary:
    diary = Diary()
    with System(diary).installed(), Checkpointer(path, **options) as ckpt:
        ckpt.save("new")
    return diary


def test_what_a_dead_process_left_is_synced_before_the_next_record_is_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpointer(path, durability="flush") as ckpt:
        ckpt.save("not synced")

    diary = save_noting(path)

    inode = path.stat().st_ino
    assert diary.entries.index(("sync", inode)) < diary.entries.index(("write", inode))


def test_the_name_of_a_new_log_is_synced_before_the_save_returns(tmp_path: Path) -> None:
    assert save_noting(tmp_path / "run.jsonl").has_synced(tmp_path)


def test_the_name_of_each_new_folder_is_synced_before_the_save_returns(tmp_path: Path) -> None:
    diary = save_noting(tmp_path / "a/b/c/run.jsonl")

    assert [diary.has_synced(tmp_path / name) for name in ("", "a", "a/b", "a/b/c")] == [True] * 4


def test_the_name_of_a_folder_that_was_there_is_synced_before_the_save_returns(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()

    assert save_noting(tmp_path / "a/run.jsonl").has_synced(tmp_path)


def test_a_recovered_log_is_synced_before_it_gets_its_name(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpointer(path) as ckpt:
        for number in range(3):
            ckpt.save(number)
    path.write_bytes(path.read_bytes().replace(b'"data":1', b'"data":9'))

    with pytest.warns(RecoveryWarning):
        diary = save_noting(path, recover="prefix")

    inode = path.stat().st_ino
    assert diary.entries.index(("sync", inode)) < diary.entries.index(("rename", inode))


def test_a_record_without_its_newline_is_kept_and_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpointer(path) as ckpt:
        ckpt.save("one")
        ckpt.save("two")
    path.write_bytes(path.read_bytes()[:-1])

    with Checkpointer(path) as ckpt:
        ckpt.save("three")

    assert [record.data for record in Checkpointer(path).records()] == ["one", "two", "three"]


def test_salvage_keeps_both_records_around_a_damaged_newline(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpointer(path) as ckpt:
        for number in range(4):
            ckpt.save(number)
    path.write_bytes(path.read_bytes().replace(b"\n", b"J", 2))

    records = Checkpointer(path, recover="salvage").records()

    assert [record.data for record in records] == [0, 1, 2, 3]


def test_what_str_splitlines_takes_for_an_end_of_a_line_is_none(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1e\r\n"
    with Checkpointer(tmp_path / "run.jsonl") as ckpt:
        ckpt.save(text)
        ckpt.save("after")

        assert [record.data for record in ckpt.records()] == [text, "after"]


def test_records_are_read_back(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "run.jsonl") as ckpt:
        for number in range(3):
            ckpt.save(number)

        assert [record.data for record in ckpt.records()] == [0, 1, 2]


def test_sectors_that_never_reached_the_disk_are_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpointer(path) as ckpt:
        ckpt.save("one")
        whole = path.stat().st_size
        ckpt.save("x" * 2000)
    content = path.read_bytes()
    path.write_bytes(content[: whole + 20] + b"\0" * 512 + content[whole + 532 :])

    with pytest.warns(TornTailWarning), Checkpointer(path) as ckpt:
        ckpt.save("two")

    assert [record.data for record in Checkpointer(path).records()] == ["one", "two"]


def test_a_tuple_is_refused(tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "run.jsonl") as ckpt, pytest.raises(UnstorableError):
        ckpt.save({"pairs": [(1, 2)]})


def test_a_link_that_takes_the_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "run.jsonl", tmp_path / "other.jsonl"
    for log in (path, other):
        with Checkpointer(log) as ckpt:
            ckpt.save(log.name)
    ckpt = Checkpointer(path)

    def link_before_the_open(call: Call) -> Any:
        if call.name == "open":
            path.unlink()
            path.symlink_to(other)
        return call.do()

    with System(link_before_the_open).installed(), pytest.raises(CheckpointError):
        _ = ckpt.last_record


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"turn":1,"ts":1.0,"data":{},"meta":{},"sum":"2:1:38:whatever"}\n')

    with pytest.raises(NewerFormatError):
        _ = Checkpointer(path).last_record
