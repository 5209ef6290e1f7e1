"""Real power cuts: file systems of our own, shut down in the middle of saves, and mounted again.

FS_IOC_SHUTDOWN drops what the file system has not written yet, its journal included, as a power cut
does. Beside the log another file is written and synced: that makes ext4 write down the new size of
our log before its bytes.

CHECKPOINT_POWER_CUTS is how many cuts there are for each of the tests (200).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from agent_checkpoint import Checkpointer, CheckpointError, CorruptLogError, TornTailWarning

CUTS = int(os.environ.get("CHECKPOINT_POWER_CUTS", "200"))
CUTS_PER_LOG = 20
FILE_SYSTEMS = {"ext4": ("64M", ["-q", "-F"]), "xfs": ("320M", ["-q", "-f"])}

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)

_ACK = struct.Struct("<QQQ")  # when, the record's seq, the number by which its state is known

pytestmark = pytest.mark.torture


class Disk:
    """A file system in a file, that can lose its power."""

    def __init__(self, kind: str, image: Path, folder: Path) -> None:
        self.kind, self.image, self.folder = kind, image, folder
        size, options = FILE_SYSTEMS[kind]
        _run("truncate", "-s", size, str(image))
        _run(f"mkfs.{kind}", *options, str(image))
        folder.mkdir()
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self.image), str(self.folder))

    def cut_power(self) -> int:
        """Cut it; return when."""
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            moment = time.monotonic_ns()
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, NO_LOG_FLUSH)
            return moment
        finally:
            os.close(fd)

    def unmount(self) -> None:
        _run("umount", str(self.folder))

    def give_up(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], stderr=subprocess.DEVNULL, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture(params=FILE_SYSTEMS)
def disk(request, tmp_path: Path) -> Iterator[Disk]:
    kind = request.param
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"there is no mkfs.{kind}; it comes with e2fsprogs or xfsprogs")
    try:
        disk = Disk(kind, tmp_path / "image", tmp_path / "disk")
    except OSError as error:
        pytest.skip(f"no {kind} of its own can be mounted here: {error}")
    try:
        try:
            disk.cut_power()
            disk.unmount()
            disk.mount()
        except OSError as error:
            pytest.skip(f"this {kind} cannot be shut down: {error}")
        yield disk
    finally:
        disk.give_up()


def state_of(number: int) -> dict[str, object]:
    size = random.Random(number).choice((10, 300, 3000, 20_000))
    return {"number": number, "text": chr(97 + number % 26) * size}


def save_until_it_fails(
    path: Path, durability: str, first: int, threads: int, say: Callable[[bytes], object]
) -> None:
    """Save on, saying when each record was acknowledged, until the disk is gone."""

    def work(numbers: Iterator[int]) -> None:
        try:
            for number in numbers:
                seq = run.save(state_of(number)).seq
                say(_ACK.pack(time.monotonic_ns(), seq, number))
        except CheckpointError:
            pass

    warnings.simplefilter("ignore", TornTailWarning)
    run = Checkpointer(path, durability=durability)
    workers = [
        threading.Thread(target=work, args=(count(first + thread, threads),))
        for thread in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def sync_another_file(path: Path) -> None:
    """Do what a database or a log does beside us, until the disk is gone."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while True:
            os.write(fd, b"x" * 100)
            os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EROFS, errno.ESHUTDOWN):
            raise


def in_background(act: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            act()
        finally:
            os._exit(0)
    return pid


class Tally:
    """What came of the cuts."""

    def __init__(self) -> None:
        self.cuts = self.acknowledged = self.too_late = 0
        self.torn = self.nuls = self.damaged = self.lost = 0
        self.problems: list[str] = []

    def __str__(self) -> str:
        return json.dumps(vars(self))


def cut_often(disk: Disk, durability: str, threads: int, seed: int) -> Tally:
    """Cut the power again and again, and look each time what is there when it is back."""
    tally = Tally()
    told: dict[int, int] = {}
    for cut in range(CUTS):
        path = disk.folder / f"run {cut // CUTS_PER_LOG}" / "run.jsonl"
        if cut % CUTS_PER_LOG == 0:
            told.clear()
        moment = random.Random(f"{seed} {cut}")
        reading, writing = os.pipe()
        first = 1 + cut * 10_000
        say = partial(os.write, writing)
        saver = in_background(partial(save_until_it_fails, path, durability, first, threads, say))
        other = in_background(partial(sync_another_file, disk.folder / "other"))
        os.close(writing)

        heard = b""
        for _ in range(moment.randrange(1, 40)):
            heard += os.read(reading, _ACK.size)
        for _ in range(moment.randrange(20_000)):
            pass
        now = disk.cut_power()

        while said := os.read(reading, 1 << 16):
            heard += said
        os.close(reading)
        os.waitpid(saver, 0)
        os.waitpid(other, 0)
        disk.unmount()
        disk.mount()
        tally.cuts += 1
        look(tally, path, told, list(_ACK.iter_unpack(heard)), now)
    return tally


def look(
    tally: Tally, path: Path, told: dict[int, int], said: list[tuple[int, int, int]], now: int
) -> None:
    """Compare the log with what was said of it, and go on in it."""
    where = f"cut {tally.cuts}"
    in_time = {seq: number for when, seq, number in said if when < now}
    tally.acknowledged += len(in_time)
    tally.too_late += len(said) - len(in_time)
    told.update(in_time)
    content = path.read_bytes() if path.exists() else b""
    tally.nuls += b"\0" in content
    try:
        run = Checkpointer(path)
        tally.torn += run.verify().torn is not None
        found = {record.seq: record.data for record in run.records()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            run.save(state_of(0))
        run.close()
        assert Checkpointer(path).verify().ok
        assert list(found) == list(range(1, len(found) + 1)), f"{where}: not dense"
    except CorruptLogError as error:
        tally.damaged += 1
        tally.problems.append(f"{where}: {error.reason}")
        found = {r.seq: r.data for r in Checkpointer(path, recover="salvage").records()}
        path.unlink()
    lost = [seq for seq, number in told.items() if found.get(seq) != state_of(number)]
    tally.lost += len(lost)
    # What was said too late, or not at all, may be there or not; it is the past from now on.
    told.clear()
    told.update({seq: int(str(state["number"])) for seq, state in found.items()})
    if path.exists():
        told[len(found) + 1] = 0
    else:
        told.clear()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_power_cut_loses_no_acknowledged_record(disk, threads):
    tally = cut_often(disk, "sync", threads, seed=threads)

    print(disk.kind, threads, tally)
    assert tally.cuts == CUTS
    assert tally.acknowledged > CUTS
    assert tally.lost == 0
    assert tally.problems == []


def test_without_a_sync_a_power_cut_leaves_a_bad_tail(disk):
    """The cuts bite, and what they leave is recovered from: nothing was promised but that."""
    tally = cut_often(disk, "flush", threads=1, seed=3)

    print(disk.kind, tally)
    assert tally.problems == []
    if disk.kind == "ext4":
        assert tally.torn >= CUTS // 10
