"""The machine in words that do not name it: processor, cores, kernel, file system, Python."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
"""File systems on which a sync costs nothing, so that its price cannot be measured."""


def processor() -> str:
    """Return the model of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def kernel() -> str:
    """Return its name and numbers only: the rest of a release may name the owner."""
    found = re.match(r"\d+(\.\d+)*", platform.release())
    return f"{platform.system()} {found.group(0) if found else ''}".strip()


def python() -> str:
    """Return the implementation and version of this interpreter."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def file_system(folder: Path) -> str:
    """Return the type of the file system that *folder* is on, or "unknown"."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    wanted = os.path.realpath(folder)
    best, best_type = "", "unknown"
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        # The kernel writes a space in a path as \040, and so on.
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code.group(1), 8)), left.split(" ")[4])
        inside = (wanted + "/").startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, best_type = point, right.split(" ")[0]
    return best_type


def described(folder: Path) -> str:
    """Return all of it, as of the disk that *folder* is on."""
    return f"{processor()}, {cores()} cores, {kernel()}, {file_system(folder)}, {python()}"
