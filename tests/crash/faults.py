"""A stand-in for the ``os`` module as ``_fsio`` sees it, whose operations can go wrong.

The files are real and so is whatever is not refused: nothing of the package is replaced but the
system below it. Every operation is counted, so that a test can let the first go wrong, then the
second, and so on until its workload passes.
"""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any
from unittest import mock

from agent_checkpoint.stores import _fsio

OPERATIONS = frozenset(
    (
        "open",
        "write",
        "read",
        "pread",
        "lseek",
        "fstat",
        "lstat",
        "fdatasync",
        "fsync",
        "ftruncate",
        "fchmod",
        "mkdir",
        "unlink",
        "link",
        "replace",
        "close",
        "flock",
    )
)
SYNCS = frozenset(("fdatasync", "fsync"))

Rule = Callable[["Call"], Any]
Watch = Callable[[str, Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Call:
    """One operation about to be done, the *number*-th."""

    number: int
    name: str
    args: tuple[Any, ...]
    function: Callable[..., Any]

    def do(self) -> Any:
        return self.function(*self.args)

    def write_only(self, length: int) -> int:
        """Write the first *length* bytes of what this call would write."""
        fd, data = self.args
        written: int = self.function(fd, bytes(data[:length]))
        return written


class System:
    """Counts the operations of ``_fsio`` and of the lock, and lets *rule* answer each of them.

    *watch* may wrap the real operations, and so sees what is really done.
    """

    def __init__(self, rule: Rule = Call.do, watch: Watch = lambda name, real: real) -> None:
        self.rule = rule
        self._watch = watch
        self.names: list[str] = []
        self._mutex = threading.Lock()
        self._flock = fcntl.flock

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in OPERATIONS:
            return real
        return lambda *args: self._answer(name, real, args)

    @contextmanager
    def installed(self) -> Iterator[System]:
        """Stand below the package until the end of the block."""

        def flock(*args: Any) -> Any:
            return self._answer("flock", self._flock, args)

        with mock.patch.object(_fsio, "os", self), mock.patch.object(fcntl, "flock", flock):
            yield self

    def _answer(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        with self._mutex:
            self.names.append(name)
            call = Call(len(self.names), name, args, self._watch(name, real))
        return self.rule(call)


class Refuse:
    """Refuse the *number*-th operation, and if *lasting* all that follow, with *code*."""

    def __init__(self, number: int, code: int, *, lasting: bool = False) -> None:
        self.number, self.code, self.lasting = number, code, lasting
        self.refused: list[str] = []

    def __call__(self, call: Call) -> Any:
        if call.number != self.number and not (self.lasting and call.number > self.number):
            return call.do()
        self.refused.append(call.name)
        if call.name == "close":
            call.do()  # as on Linux: the descriptor is gone, whatever close says
        raise OSError(self.code, os.strerror(self.code))


class RefuseEach:
    """Refuse operations by *name*: the first *times* of them, with *code*."""

    def __init__(self, name: str, code: int, times: int = 1) -> None:
        self.name, self.code, self.left = name, code, times

    def __call__(self, call: Call) -> Any:
        if call.name != self.name or self.left == 0:
            return call.do()
        self.left -= 1
        raise OSError(self.code, os.strerror(self.code))


class ShortWrite:
    """Let the *number*-th write take *length* bytes only; the one after it fails with *then*."""

    def __init__(self, number: int, length: int, then: int | None = None) -> None:
        self.number, self.length, self.then = number, length, then
        self.writes = 0

    def __call__(self, call: Call) -> Any:
        if call.name != "write":
            return call.do()
        self.writes += 1
        if self.writes == self.number:
            return call.write_only(self.length)
        if self.writes == self.number + 1 and self.then is not None:
            raise OSError(self.then, os.strerror(self.then))
        return call.do()


class Interrupt:
    """Raise KeyboardInterrupt at the *number*-th operation: *when* is before, within or after."""

    def __init__(self, number: int, when: str) -> None:
        self.number, self.when = number, when
        self.interrupted = ""

    def __call__(self, call: Call) -> Any:
        if call.number != self.number:
            return call.do()
        self.interrupted = call.name
        if self.when == "after" or call.name == "close":
            call.do()
        elif self.when == "within" and call.name == "write":
            call.write_only(len(call.args[1]) // 2)
        raise KeyboardInterrupt


class Die:
    """Kill this process at the *number*-th operation; a write is half done by then."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, call: Call) -> Any:
        if call.number == self.number:
            if call.name == "write":
                call.write_only(len(call.args[1]) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return call.do()


class HungError(Exception):
    """What was to end has not."""


@contextmanager
def no_hang(seconds: int = 300) -> Iterator[None]:
    """Raise HungError in the block if it never ends: a lock that is never freed shows itself."""

    def ring(number: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback()
        raise HungError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def open_descriptors() -> dict[str, str]:
    """Return what this process has open, when what nobody uses any more is closed."""
    gc.collect()
    found = {}
    for name in os.listdir("/dev/fd"):
        try:
            found[name] = os.readlink(f"/dev/fd/{name}")
        except OSError:
            pass  # the descriptor of this very listing
    return found


def in_child(act: Callable[[], None]) -> int:
    """Do *act* in a forked child; return its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
