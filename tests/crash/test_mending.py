"""Mending where the file system can do less, or refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import Checkpointer, RecoveryWarning, StorageError, TornTailWarning
from tests.crash import shapes
from tests.crash.faults import Call, RefuseEach, System, open_descriptors

NO_LINKS = ["EPERM", "ENOTSUP", "EMLINK", "ENOSYS"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(shapes.DAMAGED)
    return path


@pytest.mark.parametrize("code", NO_LINKS)
def test_where_a_file_has_one_name_only_the_damaged_log_is_copied_aside(path, code):
    earlier = path.with_name("run.jsonl.damaged-1")
    earlier.write_bytes(b"of an earlier damage")

    system = System(RefuseEach("link", getattr(errno, code), times=-1))
    warned = pytest.warns(RecoveryWarning, match="damaged-2")
    with system.installed(), open_with(path) as run, warned:
        run.save("new")

    assert earlier.read_bytes() == b"of an earlier damage"
    assert path.with_name("run.jsonl.damaged-2").read_bytes() == shapes.DAMAGED
    assert [record.data for record in Checkpointer(path).records()][-1] == "new"
    assert len(list(path.parent.iterdir())) == 3


@pytest.mark.parametrize("operation", ["link", "replace"])
def test_a_recovery_that_is_refused_leaves_everything_as_it_was(path, operation):
    before = open_descriptors()

    with System(RefuseEach(operation, errno.EIO, times=-1)).installed(), open_with(path) as run:
        for _ in range(3):
            with pytest.raises(StorageError):
                run.save("new")
            held = set(open_descriptors().values()) - set(before.values())
            assert held == {str(path)}

    assert path.read_bytes() == shapes.DAMAGED
    beside = [each for each in path.parent.iterdir() if each != path]
    assert all(each.read_bytes() == shapes.DAMAGED for each in beside)
    assert not any(each.name.endswith(".rewrite") for each in beside)
    assert open_descriptors() == before


def test_a_copy_that_does_not_fit_on_the_disk_leaves_nothing_behind(path):
    def full(call: Call) -> Any:
        if call.name == "link":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if call.name == "write" and call.args[1] == shapes.DAMAGED:
            call.write_only(100)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call.do()

    with System(full).installed(), open_with(path) as run, pytest.raises(StorageError):
        run.save("new")

    assert path.read_bytes() == shapes.DAMAGED
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_above_that_may_not_be_opened_does_not_keep_a_log_from_being_made(tmp_path):
    path = tmp_path / "own" / "run.jsonl"
    path.parent.mkdir()

    def closed(call: Call) -> Any:
        if call.name == "open" and call.args[0] == str(tmp_path):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return call.do()

    with System(closed).installed(), Checkpointer(path) as run:
        run.save("first")

    assert run.verify().records == 1


def open_with(path: Path) -> Checkpointer:
    return Checkpointer(path, recover="salvage")


@pytest.mark.parametrize("operation", ["fdatasync", "fsync"])
def test_what_is_dropped_is_told_even_if_the_sync_behind_it_fails(path, operation):
    path.write_bytes(shapes.HALF_A_LINE)

    system = System(RefuseEach(operation, errno.EIO))
    with system.installed(), pytest.warns(TornTailWarning), pytest.raises(StorageError):
        Checkpointer(path).save("new")

    assert path.read_bytes() == shapes.WHOLE


def test_a_recovery_is_told_even_if_the_sync_behind_it_fails(path):
    system = System(RefuseEach("fsync", errno.EIO))
    real = system.rule
    is_in_place = []

    def refuse_once_in_place(call: Call) -> Any:
        if call.name == "replace":
            is_in_place.append(call)
        return real(call) if is_in_place else call.do()

    system.rule = refuse_once_in_place
    with system.installed(), pytest.warns(RecoveryWarning), pytest.raises(StorageError) as caught:
        open_with(path).save("new")

    assert "every record before it is kept" in str(caught.value)
    assert path.with_name("run.jsonl.damaged-1").read_bytes() == shapes.DAMAGED


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_recovered_log_may_be_read_by_those_who_might_before(path, mode):
    path.chmod(mode)

    with pytest.warns(RecoveryWarning):
        open_with(path).save("new")

    assert path.stat().st_mode & 0o777 == mode


def test_where_files_have_no_mode_a_log_is_recovered_all_the_same(path):
    system = System(RefuseEach("fchmod", errno.EPERM))

    with system.installed(), pytest.warns(RecoveryWarning):
        open_with(path).save("new")

    assert "fchmod" in system.names
    assert [record.data for record in Checkpointer(path).records()][-1] == "new"
