"""A group commit in a few lines: what threads that share a sync can reach in this interpreter.

It queues at one gate, as the library does (decision 5), and keeps one promise only: when ``append``
returns, the bytes were synced. It knows nothing of short writes, failed syncs and numbers.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path


class _Queue:
    """Lines that share one write, and the gate at which their threads wait for it."""

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.lines: list[_Line] = []


class _Line:
    """One line on its way into the file."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.is_durable = False


class GroupCommit:
    """An append-only file whose writers share the sync of one of them."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        self._writing = threading.Lock()
        self._open = _Queue()

    def append(self, content: bytes) -> None:
        """Append *content* and return when it is synced."""
        line = _Line(content)
        queue = self._open
        queue.lines.append(line)
        with queue.gate:
            if not line.is_durable:
                with self._writing:
                    self._open = _Queue()
                    lines = [each for each in queue.lines if not each.is_durable]
                    os.write(self._fd, b"".join([each.content for each in lines]))
                    os.fdatasync(self._fd)
                    for each in lines:
                        each.is_durable = True

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
