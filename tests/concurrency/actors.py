"""Other processes and threads for these tests; a hang of theirs ends and fails the test."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import agent_checkpoint

HANG_S = int(os.environ.get("HANG_S", "60"))
"""Nothing here takes a second; what takes a minute hangs, and is killed."""

SOURCES = str(Path(agent_checkpoint.__file__).parents[1])
WRITER = str(Path(__file__).with_name("writer.py"))


class Program:
    """Another process, a Python of its own; lines go in and lines come out."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SOURCES},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._read = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def write_line(self, line: str) -> None:
        self._in.write(line.encode() + b"\n")
        self._in.flush()

    def read_line(self) -> str:
        while b"\n" not in self._read:
            chunk = read_or_kill(self._out.fileno(), self.pid)
            if not chunk:
                pytest.fail(f"the process ended with {self._process.wait()} and said nothing")
            self._read += chunk
        line, self._read = self._read.split(b"\n", 1)
        return line.decode()

    def kill(self) -> None:
        """End the process as a crash does."""
        self._process.kill()
        self._process.wait()

    def exit(self) -> None:
        """Let the process come to the end of its program."""
        self._in.close()
        try:
            assert self._process.wait(HANG_S) == 0
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail("the process did not end")

    def clean_up(self) -> None:
        if self._process.poll() is None:
            self.kill()
        self._in.close()
        self._out.close()


class Writer(Program):
    """Another process with one handle, which it uses as it is told."""

    def __init__(self) -> None:
        super().__init__([WRITER])

    def ask(self, name: str, *arguments: Any) -> None:
        """Tell what to do next, and do not wait for it."""
        self.write_line(json.dumps([name, *arguments]))

    def answer(self) -> Any:
        """Return what came of it, or raise the error that it raised there."""
        answer = json.loads(self.read_line())
        if "error" in answer:
            raise getattr(agent_checkpoint, answer["error"])(*answer["arguments"])
        return answer["value"]

    def do(self, name: str, *arguments: Any) -> Any:
        self.ask(name, *arguments)
        return self.answer()

    def open(self, path: Path, **options: Any) -> None:
        self.do("open", str(path), options)

    def enter(self) -> None:
        self.do("enter")

    def save(self, data: Any) -> tuple[int, int]:
        """Return the seq and the turn."""
        seq, turn = self.do("save", data)
        return seq, turn

    def last(self) -> Any:
        return self.do("last")

    def read(self) -> list[Any]:
        data: list[Any] = self.do("read")
        return data

    def close(self) -> None:
        self.do("close")

    def drop(self) -> None:
        self.do("drop")


class Child:
    """A forked child of the test, in which *act* runs."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._pipe, report = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._pipe)
                with open(report, "wb") as file:
                    pickle.dump(_outcome_of(act), file)
            finally:
                os._exit(0)
        os.close(report)
        self._is_reaped = False

    def result(self) -> Any:
        """Wait until *act* has ended and return what it returned, or raise what it raised."""
        report = b""
        while chunk := read_or_kill(self._pipe, self.pid):
            report += chunk
        self.reap()
        returned, raised = pickle.loads(report)
        if raised is not None:
            raise raised
        return returned

    def kill(self) -> None:
        """End the child as a crash does."""
        os.kill(self.pid, signal.SIGKILL)
        self.reap()

    def reap(self) -> None:
        if not self._is_reaped:
            self._is_reaped = True
            os.waitpid(self.pid, 0)
            os.close(self._pipe)

    def clean_up(self) -> None:
        if not self._is_reaped:
            self.kill()


def _outcome_of(act: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return act(), None
    except BaseException as error:
        return None, error


def read_or_kill(fd: int, pid: int) -> bytes:
    """Read what comes; if nothing does, end the process that hangs and fail."""
    ready, _, _ = select.select([fd], [], [], HANG_S)
    if not ready:
        os.kill(pid, signal.SIGKILL)
        pytest.fail(f"process {pid} hangs")
    return os.read(fd, 65536)


class Crew:
    """Threads that are joined, and whose results and errors are kept, in the order of *acts*."""

    def __init__(self, acts: Sequence[Callable[[], Any]]) -> None:
        self.results: list[Any] = [None] * len(acts)
        self.errors: list[BaseException | None] = [None] * len(acts)
        self._threads = [
            threading.Thread(target=self._run, args=(number, act), daemon=True)
            for number, act in enumerate(acts)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int, act: Callable[[], Any]) -> None:
        try:
            self.results[number] = act()
        except BaseException as error:
            self.errors[number] = error

    def join(self) -> Crew:
        """Wait for all of them; threads that hang are left behind, and the test fails."""
        for thread in self._threads:
            thread.join(HANG_S)
        hanging = sum(thread.is_alive() for thread in self._threads)
        if hanging:
            pytest.fail(f"{hanging} of {len(self._threads)} threads hang")
        return self

    def all_results(self) -> list[Any]:
        """Join them, raise the first error if there is one, and return what they returned."""
        self.join()
        for error in self.errors:
            if error is not None:
                raise error
        return self.results


def is_free(path: Path) -> bool:
    """Tell whether nobody, this process included, holds the lock of the log at *path*."""
    with path.open("rb") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
