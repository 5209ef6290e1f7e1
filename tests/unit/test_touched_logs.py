"""A log deleted, replaced or cut under an open handle: noticed before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_checkpoint import (
    Checkpointer,
    CheckpointError,
    ConflictError,
    LogReplacedError,
)
from tests.logs import build, plain, put, seen, snapshot
from tests.refusals import (
    check_words,
    posix_only,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def delete(path: Path) -> None:
    path.unlink()


def replace_by_the_same(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def replace_by_another(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(build(["other"] * 9).content)
    copy.replace(path)


def replace_by_a_shorter(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(build(["other"]).content)
    copy.replace(path)


def replace_by_nothing(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(b"")
    copy.replace(path)


def cut_a_record(path: Path) -> None:
    os.truncate(path, len(b"".join(path.read_bytes().splitlines(keepends=True)[:-1])))


def cut_half_a_record(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 20)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def overwrite_by_another(path: Path) -> None:
    path.write_bytes(build(["other"] * 9).content)


def overwrite_by_a_shorter(path: Path) -> None:
    path.write_bytes(build(["other"]).content)


TOUCHES = [
    delete,
    replace_by_another,
    replace_by_a_shorter,
    replace_by_nothing,
    cut_a_record,
    cut_half_a_record,
    empty,
    overwrite_by_another,
    overwrite_by_a_shorter,
]


def check_refused_once_touched(ckpt: Checkpointer, touch: Callable[[Path], None]) -> None:
    """Check that a save after *touch* is refused, again and again, and changes nothing."""
    path = Path(ckpt.path)
    touch(path)
    before = snapshot(path.parent)

    # Once more, but where the very same records are back: then nothing is lost by going on.
    for _ in range(1 if touch is replace_by_the_same else 2):
        with pytest.raises(ConflictError) as caught:
            ckpt.save("lost if it were written")
        assert snapshot(path.parent) == before
        check_words(caught.value, str(path), advice="again")
    ckpt.close()
    again = seen(Checkpointer(path).records())
    Checkpointer(path).save("new")

    assert seen(Checkpointer(path).records())[: len(again)] == again
    assert Checkpointer(path).last_record is not None


@posix_only
@pytest.mark.filterwarnings("ignore::agent_checkpoint.TornTailWarning")
@pytest.mark.parametrize("touch", [*TOUCHES, replace_by_the_same])
def test_a_log_touched_between_two_saves_is_not_written_to(path, touch):
    ckpt = Checkpointer(path)
    for state in range(3):
        ckpt.save(state)

    check_refused_once_touched(ckpt, touch)


@posix_only
@pytest.mark.filterwarnings("ignore::agent_checkpoint.TornTailWarning")
@pytest.mark.parametrize("touch", TOUCHES)
def test_a_log_touched_between_opening_and_the_first_save_is_not_written_to(path, touch):
    put(path, build([1, 2, 3]).content)

    check_refused_once_touched(Checkpointer(path), touch)


@posix_only
@pytest.mark.filterwarnings("ignore::agent_checkpoint.TornTailWarning")
@pytest.mark.parametrize("touch", [*TOUCHES, replace_by_the_same])
def test_a_log_touched_between_with_and_the_first_save_is_not_written_to(path, touch):
    put(path, build([1, 2, 3]).content)

    with Checkpointer(path) as ckpt:
        check_refused_once_touched(ckpt, touch)


@posix_only
def test_a_log_deleted_in_a_with_block_before_anything_was_saved_does_not_lose_the_first(path):

    with Checkpointer(path) as ckpt:
        path.unlink()
        try:
            ckpt.save("first")
        except CheckpointError:
            return

    assert seen(Checkpointer(path).records()) == [(1, 1, "first")]


@posix_only
def test_what_became_of_the_log_is_said(path):
    words = {delete: "deleted", replace_by_another: "replaced by another file", empty: "cut"}

    for touch, what in words.items():
        put(path, build([1]).content)
        ckpt = Checkpointer(path)
        ckpt.save(2)
        touch(path)
        with pytest.raises(LogReplacedError) as caught:
            ckpt.save(3)
        ckpt.close()

        check_words(caught.value, str(path), what, "record 2", advice="Put the log back, or open")


@posix_only
def test_a_deleted_folder_is_noticed(tmp_path):
    path = tmp_path / "runs" / "run.jsonl"
    ckpt = Checkpointer(path)
    ckpt.save(1)
    path.unlink()
    path.parent.rmdir()

    with pytest.raises(LogReplacedError) as caught:
        ckpt.save(2)

    check_words(caught.value, str(path), "deleted", advice="Put the log back")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [build, plain])
def test_records_of_a_program_that_asks_for_no_lock_are_not_written_over(path, make):
    ckpt = Checkpointer(path)
    ckpt.save(1)
    with path.open("ab") as file:
        file.write(plain(["by hand"]).content)
    before = snapshot(path.parent)

    with pytest.raises(ConflictError):
        ckpt.save(2)

    assert snapshot(path.parent) == before
    assert [record.data for record in Checkpointer(path).records()] == [1, "by hand"]


def test_a_reader_of_a_log_that_shrinks_gets_records_or_an_error_of_ours(path):
    log = build([{"n": n, "text": "x" * 1000} for n in range(3000)])
    put(path, log.content)

    records = Checkpointer(path).records()
    found = seen([next(records) for _ in range(10)])
    os.truncate(path, len(log.content) // 2)
    found += seen(records)

    assert found == log.records[: len(found)]
