"""A disk that is full in the middle of a line, and has room again later."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_checkpoint import Checkpointer, StorageError
from tests.crash.faults import in_child, no_hang

MEGABYTE = 1024 * 1024
SIZES = [3000, 70_000, 300_000]


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    with no_hang():
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a file system of its own, of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def save_until_full_and_go_on(
    path: Path, durability: str, size: int, code: int, make_room: Callable[[], None]
) -> None:
    """Save states of *size* until there is no room; make some, and go on with the same handle."""
    saved: list[object] = []
    with Checkpointer(path, durability=durability) as run:
        before, state, error = b"", "first", None
        while error is None:
            try:
                saved.append(run.save(state).data)
                before, state = path.read_bytes(), f"{len(saved)} " + "x" * size
            except StorageError as caught:
                error = caught

        assert type(error) is StorageError
        assert error.errno == code
        assert os.strerror(code) in str(error)
        assert "Nothing of this call was stored" in str(error)
        assert path.read_bytes() == before, "half a line was left"
        assert [record.data for record in run.records()] == saved

        with pytest.raises(StorageError):
            run.save(state)
        assert path.read_bytes() == before, "half a line was left"

        make_room()
        saved += [run.save(state).data for state in (state, "and so on")]

    assert [record.data for record in Checkpointer(path).records()] == saved
    assert Checkpointer(path).verify().ok


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("durability", ["sync", "flush"])
def test_a_full_disk_leaves_the_log_as_it_was(small_disk, durability, size):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(MEGABYTE // 2))

    save_until_full_and_go_on(
        small_disk / "run.jsonl", durability, size, errno.ENOSPC, ballast.unlink
    )


def test_a_log_that_finds_no_room_for_its_first_record_is_empty_and_goes_on_later(small_disk):
    path, ballast = small_disk / "run.jsonl", small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                break
    run = Checkpointer(path)

    with pytest.raises(StorageError) as caught:
        run.save("never")

    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b""
    ballast.unlink()
    assert run.save("first").seq == 1
    run.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("durability", ["sync", "flush"])
def test_a_limit_on_the_size_of_files_leaves_the_log_as_it_was(tmp_path, durability, size):
    def under_a_limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE // 2, most))

        save_until_full_and_go_on(
            tmp_path / "run.jsonl",
            durability,
            size,
            errno.EFBIG,
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )

    assert in_child(under_a_limit) == 0
