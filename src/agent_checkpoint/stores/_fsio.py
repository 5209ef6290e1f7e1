"""The only module that opens, writes, syncs, cuts and renames files.

Each function is one operation as this package needs it, and raises what the operating system
raises: to say what it means for the data is the business of those who call.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator

CHUNK_BYTES = 1024 * 1024

# O_NONBLOCK: a FIFO that took the place of the log must not hang the open. O_NOFOLLOW: nor may a
# link lead the writes elsewhere. Windows has neither, and needs O_BINARY to leave newlines alone.
_FLAGS = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)
_FILE_MODE = 0o600  # a run holds conversations and tool results: it is its owner's
_FOLDER_MODE = 0o700


class SyncFailedError(OSError):
    """The system could not sync, and will say of the next sync that it could."""


def kind_of(path: str) -> str:
    """Return "file", "nothing", or in words what stands at *path* instead of a file."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    if stat.S_ISREG(mode):
        return "file"
    for is_kind, words in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if is_kind(mode):
            return words
    return "a device"


def _open(path: str, flags: int, mode: int = 0) -> int:
    opened: list[int] = []
    try:
        # One step for the interpreter: an interrupt during the open cannot lose the descriptor.
        opened.extend(map(os.open, (path,), (flags,), (mode,)))
        return opened[0]
    except BaseException:
        for fd in opened:
            close(fd)
        raise


def open_read(path: str) -> int:
    return _open(path, os.O_RDONLY | _FLAGS)


def open_append(path: str) -> int:
    """Open *path* to read it and to append to it, making it if it is not there."""
    return _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, _FILE_MODE)


def open_new(path: str) -> int:
    """Make *path*; FileExistsError if the name is taken."""
    return _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _FLAGS, _FILE_MODE)


def close(fd: int) -> None:
    # What was acknowledged has been synced before, so an error of close says nothing about it.
    try:
        os.close(fd)
    except OSError:
        pass


def identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def at(path: str) -> tuple[tuple[int, int], int] | None:
    """Return the identity and the size of what stands at *path*, if anything does."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (status.st_dev, status.st_ino), status.st_size


def identity_at(path: str) -> tuple[int, int] | None:
    found = at(path)
    return found and found[0]


def size(fd: int) -> int:
    return os.fstat(fd).st_size


def read(fd: int, start: int, stop: int) -> bytes:
    """Return the bytes from *start* to *stop*, or to the end of the file if that comes first."""
    return b"".join(chunks(fd, start, stop))


def chunks(fd: int, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the bytes from *start* to *stop* piece by piece."""
    at = start
    while stop is None or at < stop:
        wanted = CHUNK_BYTES if stop is None else min(CHUNK_BYTES, stop - at)
        chunk = _read_at(fd, wanted, at)
        if not chunk:
            return
        at += len(chunk)
        yield chunk


if sys.platform == "win32":

    def _read_at(fd: int, size: int, at: int) -> bytes:
        os.lseek(fd, at, os.SEEK_SET)
        return os.read(fd, size)

else:

    def _read_at(fd: int, size: int, at: int) -> bytes:
        return os.pread(fd, size, at)  # the place of a read() is shared with a forked child


def write_all(fd: int, data: bytes) -> None:
    """Append *data*, going on after a short write until all of it is written."""
    written = os.write(fd, data)
    if written == len(data):
        return
    rest = memoryview(data)[written:]
    while rest:
        written = os.write(fd, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, "the system takes no more bytes")
        rest = rest[written:]


def sync(fd: int) -> None:
    """Return when the file's bytes and length are on the disk."""
    try:
        _sync(fd)
    except OSError as error:
        raise SyncFailedError(error.errno, error.strerror) from error


if sys.platform == "darwin":
    import fcntl

    def _sync(fd: int) -> None:
        # fsync on macOS stops at the drive's cache. Not every file system knows the way past it.
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(fd)

elif sys.platform == "win32":

    def _sync(fd: int) -> None:
        os.fsync(fd)

else:

    def _sync(fd: int) -> None:
        os.fdatasync(fd)


def truncate(fd: int, end: int) -> None:
    os.ftruncate(fd, end)


def sync_folder(folder: str) -> None:
    """Return when the names in *folder* are on the disk, where the system can do that."""
    if sys.platform == "win32":
        return
    fd = _open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network and FUSE file systems cannot sync a folder at all.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise SyncFailedError(error.errno, error.strerror) from error
    finally:
        close(fd)


def make_folders(folder: str) -> None:
    """Make *folder* and what is missing above it, each name on the disk before the next is made."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        parent, name = os.path.split(folder)
        if not name or parent == folder:
            break
        missing.append(folder)
        folder = parent
    if missing:
        # A process that died may have made the folder above, and not have lived to sync its name.
        sync_name(folder)
    for made in reversed(missing):
        try:
            os.mkdir(made, _FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(made):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), made) from None
        sync_folder(os.path.dirname(made))


def sync_names(path: str) -> None:
    """Return when the name of the file *path* is on the disk, and that of its folder.

    The folder may have been made by a process that died before it could sync.
    """
    folder = os.path.dirname(path)
    sync_folder(folder)
    sync_name(folder)


def sync_name(folder: str) -> None:
    """Return when the name of *folder* is on the disk, if it can be one that we made."""
    try:
        sync_folder(os.path.dirname(folder))
    except PermissionError:
        pass  # We cannot have made a name in a folder that we may not open.


def take_mode(fd: int, path: str) -> None:
    """Let the file have the mode of *path*, where the file system knows of such."""
    if hasattr(os, "fchmod"):
        try:
            os.fchmod(fd, stat.S_IMODE(os.lstat(path).st_mode))
        except PermissionError:
            pass


def remove_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def rename(source: str, target: str) -> None:
    os.replace(source, target)


def link(source: str, target: str) -> None:
    """Give the file *source* a second name; FileExistsError if *target* is taken."""
    os.link(source, target)
