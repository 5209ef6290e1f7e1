"""After a failed sync, what the system shows of a file may be in no disk: it is written anew."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import (
    Checkpointer,
    CorruptLogError,
    RecoveryWarning,
    StorageError,
    UnknownOutcomeError,
)
from tests.crash import shapes
from tests.crash.faults import Call, RefuseEach, System


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(shapes.WHOLE)
    return path


def check_written_anew(path: Path, *, expected: list[Any]) -> None:
    before = path.stat().st_ino

    with Checkpointer(path) as again:
        again.save("last")

    assert path.stat().st_ino != before
    assert [record.data for record in again.records()] == [*expected, "last"]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_failed_sync_puts_earlier_saves_that_were_not_synced_in_doubt(path):
    flushing = Checkpointer(path, durability="flush")
    flushing.save("flushed")
    syncing = Checkpointer(path)

    system = System(RefuseEach("fdatasync", errno.EIO, times=1))
    with system.installed(), pytest.raises(UnknownOutcomeError):
        syncing.save("who knows")

    check_written_anew(path, expected=[*shapes.STATES, "flushed"])


def test_a_log_that_is_damaged_as_well_is_not_written_anew_without_what_is_behind_the_damage(path):
    """Two faults of one disk: a bit that changed in the middle, and then a sync that fails."""
    path.write_bytes(shapes.DAMAGED)
    run = Checkpointer(path)
    system = System(RefuseEach("fdatasync", errno.EIO, times=1))
    with system.installed(), pytest.raises(StorageError):
        run.save("never")
    before = path.read_bytes()

    with Checkpointer(path) as again, pytest.raises(CorruptLogError):
        again.save("never")

    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    with pytest.warns(RecoveryWarning), Checkpointer(path, recover="salvage") as salvaged:
        salvaged.save("fourth")
    assert [record.data for record in salvaged.records()] == ["one", "three", "fourth"]


def test_a_failed_sync_of_the_cutting_back_puts_the_log_in_doubt(path):
    def failing(call: Call) -> Any:
        if call.name == "write" and len(call.args[1]) > 60:
            call.write_only(5)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if call.name == "fdatasync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call.do()

    run = Checkpointer(path)
    run.save("fourth")
    with System(failing).installed(), pytest.raises(UnknownOutcomeError):
        run.save("x" * 60)

    check_written_anew(path, expected=[*shapes.STATES, "fourth"])


def test_a_failed_sync_of_a_log_that_was_synced_until_then_is_cut_back_and_no_more(path):
    run = Checkpointer(path)
    run.save("fourth")
    system = System(RefuseEach("fdatasync", errno.EIO, times=1))
    with system.installed(), pytest.raises(UnknownOutcomeError):
        run.save("who knows")
    before = path.stat().st_ino

    with Checkpointer(path) as again:
        again.save("fifth")

    assert path.stat().st_ino == before
    assert [record.data for record in again.records()] == [*shapes.STATES, "fourth", "fifth"]
