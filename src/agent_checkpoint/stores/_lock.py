"""One writer for each log: a lock on the file among processes, one shared entry within a process.

``flock`` on the log itself, never ``lockf``, whose lock any close of the file in this process
would drop. A second open of the same log in this process would lock itself out, so all handles of
a process share one locked descriptor, in ``_held``. Which of them may write is not decided by the
lock but by what they have read (``LogFile.append``).
"""

from __future__ import annotations

import errno
import os
import sys
import threading

from .._core.line import EMPTY, Position
from ..errors import RunLockedError
from . import _fsio


class Held:
    """A log whose lock this process has or is about to have, with its descriptor.

    An interrupt (Ctrl-C) can end any line here. So the entry comes before the lock and outlives it,
    both are taken and given up in steps that can be done again, and users are a set.
    """

    __slots__ = (
        "durable_end",
        "end",
        "fd",
        "identity",
        "is_locked",
        "mutex",
        "position",
        "ready",
        "users",
    )

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_locked = False
        self.mutex = threading.RLock()
        self.users: set[int] = set()
        self.ready = False  # mended if need be, synced, and the three below known
        self.end = 0
        self.durable_end = 0
        self.position = EMPTY
        try:
            self.identity = _fsio.identity(fd)
        except BaseException:
            self._close()  # or it stays open as long as somebody keeps the error
            raise

    def grow(self, length: int, position: Position, *, durable: bool) -> None:
        """Note what was appended."""
        # The end comes last: as long as it is not the file's, the log is read again.
        end = self.end + length
        self.position = position
        if durable:
            self.durable_end = end
        self.end = end

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        fd = getattr(self, "fd", -1)
        self.fd = -1
        if fd >= 0:
            _fsio.close(fd)


# Reentrant: the garbage collector may close a forgotten handle in the middle of opening another.
# It is taken inside a log's mutex, never around one.
_registry = threading.RLock()
_held: dict[tuple[int, int], Held] = {}

suspects: set[tuple[int, int]] = set()
"""Files whose sync failed: what the system shows of them may never have reached the disk."""


def hold(path: str, user: int) -> Held:
    """Return the locked log at *path*, made if it is not there; RunLockedError if it is taken."""
    while True:
        opened = Held(_fsio.open_append(path))
        try:
            held = _lock_once(opened, path, user)
        finally:
            if not opened.is_locked:
                _give_up(opened, user)
        if held is not None:
            return held
        if _fsio.identity_at(path) == opened.identity:
            raise RunLockedError(path, _pid_of_holder(opened.identity))


def _lock_once(opened: Held, path: str, user: int) -> Held | None:
    with _registry:
        held = _held.setdefault(opened.identity, opened)
        held.users.add(user)
        if not held.is_locked:
            held.is_locked = (
                _lock(held.fd)
                # Whoever held it before may have put another file in its place meanwhile.
                and _fsio.identity_at(path) == held.identity
            )
        if held.is_locked:
            return held
        _give_up(held, user)
        return None


def adopt(fd: int, user: int) -> Held:
    """Hold a file just made, before it gets the name by which others could find it."""
    held = Held(fd)
    with _registry:
        _held[held.identity] = held
        held.users.add(user)
        try:
            held.is_locked = _lock(fd)
        except BaseException:
            _drop(held)
            raise
    return held


def release(user: int) -> None:
    """Give up all that *user* holds, once no write through it goes on; the last one unlocks."""
    for held in list(_held.values()):
        if user in held.users:
            with held.mutex:
                _give_up(held, user)


def forget(user: int) -> None:
    """Give up all that *user* held, which is no more: nothing is written through it."""
    for held in list(_held.values()):
        if user in held.users:
            _give_up(held, user)


def abandon(held: Held) -> None:
    """Unlock *held* for all who use it: its file is no longer to be written through it."""
    with _registry:
        _drop(held)


def _give_up(held: Held, user: int) -> None:
    with _registry:
        if not held.users - {user}:
            _drop(held)
        held.users.discard(user)


def _drop(held: Held) -> None:
    held.ready = held.is_locked = False
    fd = held.fd
    if fd >= 0:
        _unlock(fd)
    if _held.get(held.identity) is held:
        del _held[held.identity]
    held.fd = -1
    if fd >= 0:
        _fsio.close(fd)


def _forget_in_child() -> None:
    # The child closes its copies, or a child that outlives a killed parent would keep the parent's
    # runs locked. It never unlocks: that would take the lock from the parent.
    global _registry  # noqa: PLW0603 - another thread of the parent may have held it at the fork
    _registry = threading.RLock()
    for held in _held.values():
        _fsio.close(held.fd)
        held.fd = -1
        held.is_locked = False
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


if sys.platform == "win32":
    import msvcrt

    # A byte far behind the end of any log, since a locked byte cannot be read by others.
    _LOCKED_BYTE = 2**62

    def _lock(fd: int) -> bool:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True

    def _unlock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        except OSError:
            pass  # closing it unlocks as well

else:
    import fcntl

    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(fd: int) -> None:
        # Said, not left to close: a child forked past Python's hooks still has a copy of fd.
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError:
            pass


def _pid_of_holder(identity: tuple[int, int]) -> int | None:
    """Return the process that holds the flock, where the system tells it (Linux)."""
    device, inode = identity
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            lines = locks.read().splitlines()
    except (OSError, ValueError):
        return None
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1312 0 EOF
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == wanted and int(words[4]) > 0:
            return int(words[4])
    return None
