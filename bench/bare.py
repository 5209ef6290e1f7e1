"""What is measured against: the same bytes appended with nothing around ``os.write``."""

from __future__ import annotations

import os
from pathlib import Path


class BareLog:
    """A file descriptor opened for appending."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


class LineReader:
    """The lines that another handle appends to a file, one by one."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self._seen = os.fstat(self._fd).st_size

    def newest(self) -> bytes:
        """Return what was appended since the last call: exactly one line."""
        end = os.fstat(self._fd).st_size
        line = os.pread(self._fd, end - self._seen, self._seen)
        if not line.endswith(b"\n") or line.count(b"\n") != 1:
            raise AssertionError("one save did not append exactly one line: nothing to compare")
        self._seen = end
        return line

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
