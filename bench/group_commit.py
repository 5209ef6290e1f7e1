"""A group commit in a few lines: what threads that share a sync can reach in this interpreter.

It keeps one promise only: when ``append`` returns, the bytes were synced. It knows nothing of
short writes, failed syncs and numbers.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path


class _Batch:
    """Lines that share one sync, and the threads that wait for it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.waiting: list[threading.Lock] = []
        self.is_durable = False


class GroupCommit:
    """An append-only file whose writers share the sync of one of them, the leader."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._open = _Batch()
        self._is_led = False

    def append(self, line: bytes) -> None:
        """Append *line* and return when it is synced."""
        with self._lock:
            batch = self._open
            batch.lines.append(line)
            turn = threading.Lock()
            turn.acquire()
            batch.waiting.append(turn)
            leads, self._is_led = not self._is_led, True
        if not leads:
            turn.acquire()
            if batch.is_durable:
                return
        with self._lock:
            self._open = _Batch()
        os.write(self._fd, b"".join(batch.lines))
        os.fdatasync(self._fd)
        batch.is_durable = True
        # Its writers come back with new lines, which the next leader then takes along.
        for other in batch.waiting:
            if other is not turn:
                other.release()
        with self._lock:
            successors = self._open.waiting
            self._is_led = bool(successors)
        if successors:
            successors[0].release()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
