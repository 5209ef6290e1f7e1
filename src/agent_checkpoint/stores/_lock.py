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
from functools import partial
from itertools import count
from typing import Optional

from .._core.line import EMPTY, Position
from ..errors import RunLockedError
from . import _fsio
from ._mutex import locked


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
            self.close()  # or it stays open as long as somebody keeps the error
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
        self.close()

    def close(self) -> None:
        """Close the descriptor; whoever has it no more cannot close another file by its number."""
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
    held = None
    tries = count(1)
    while held is None:
        forks = _forks(next(tries))
        opened = Held(_fsio.open_append(path))
        held = locked(_registry, _hold_once, opened, path, user, forks)
    return held


def _hold_once(opened: Held, path: str, user: int, forks: _Forks) -> Held | None:
    held = _held.setdefault(opened.identity, opened)
    try:
        held.users.add(user)
        if not held.is_locked:
            if _was_forked_since(forks):
                return None
            is_locked = _lock(held.fd)
            # Whoever held it before may have put another file in its place meanwhile.
            if _fsio.identity_at(path) != held.identity:
                return None
            if not is_locked:
                raise RunLockedError(path, _pid_of_holder(held.identity))
            held.is_locked = True
        return held
    except ValueError:
        if held.fd >= 0:
            raise
        return None  # a signal handler gave it up meanwhile
    finally:
        if held is not opened:
            _drop(opened)
        if not held.is_locked:
            _give_up(held, user)


def adopt(path: str, user: int) -> Held:
    """Make the file *path* and hold it, before it gets the name by which others could find it."""
    for number in count(1):
        forks = _forks(number)
        held = Held(_fsio.open_new(path))
        if locked(_registry, _adopt, held, user, forks):
            return held
        _fsio.remove_if_there(path)
    raise AssertionError


def _adopt(held: Held, user: int, forks: _Forks) -> bool:
    _held[held.identity] = held
    held.users.add(user)
    try:
        held.is_locked = not _was_forked_since(forks) and _lock(held.fd)
    finally:
        if not held.is_locked:
            _drop(held)
    return held.is_locked


def release(user: int) -> None:
    """Give up all that *user* holds, once no write through it goes on; the last one unlocks."""
    for held in list(_held.values()):
        if user in held.users:
            locked(held.mutex, locked, _registry, _give_up, held, user)


def forget(user: int) -> None:
    """Give up all that *user* held, which is no more: nothing is written through it."""
    for held in list(_held.values()):
        if user in held.users:
            locked(_registry, _give_up, held, user)


def abandon(held: Held) -> None:
    """Unlock *held* for all who use it: its file is no longer to be written through it."""
    locked(_registry, _drop, held)


def disown(held: Held) -> None:
    """Close this process's copy of a descriptor that its parent holds: that stays locked."""
    held.close()
    held.ready = held.is_locked = False
    if _held.get(held.identity) is held:
        _held.pop(held.identity, None)


def _give_up(held: Held, user: int) -> None:
    if not held.users - {user}:
        _drop(held)
    held.users.discard(user)


def _drop(held: Held) -> None:
    held.ready = held.is_locked = False
    if held.fd >= 0:
        _unlock(held.fd)
    if _held.get(held.identity) is held:
        _held.pop(held.identity, None)
    held.close()
    # Once more: a signal handler may have locked it again in the middle of this.
    held.ready = held.is_locked = False


def _forget_in_child() -> None:
    # A child that outlives a killed parent would else keep the parent's runs locked. It never
    # unlocks: that would take the lock from the parent.
    global _registry  # noqa: PLW0603 - another thread of the parent may have held it at the fork
    _registry = threading.RLock()
    for held in list(_held.values()):
        disown(held)


# One byte for each fork: to append one is a single step, which no interrupt can lose.
_forks_begun, _forks_ended = bytearray(), bytearray()
_Forks = Optional["tuple[int, int]"]
_TRIES = 5

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=partial(_forks_begun.append, 0),
        after_in_parent=partial(_forks_ended.append, 0),
        after_in_child=partial(_forks_ended.append, 0),
    )
    os.register_at_fork(after_in_child=_forget_in_child)


def _forks(number: int) -> _Forks:
    """Return how many forks of this process have begun, and how many ended; None from some try on.

    In a program that forks all the time there has to be an end to it.
    """
    return (len(_forks_begun), len(_forks_ended)) if number < _TRIES else None


def _was_forked_since(forks: _Forks) -> bool:
    """Tell whether a child may have a copy of a descriptor that was opened after *forks*.

    From the moment that it stands in ``_held``, a child finds it there and closes its copy.
    """
    if forks is None:
        return False
    begun, ended = len(_forks_begun), len(_forks_ended)
    return begun != ended or (begun, ended) != forks


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
        try:
            os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
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
        except (OSError, ValueError):
            pass  # a signal handler closed it meanwhile


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
