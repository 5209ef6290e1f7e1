"""Logs to be hurt, and what a reader has to see of them.

They are built byte by byte after docs/format.md, apart from the package's own writer, so that both
are held to the same page and every run of a sweep hurts the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

from agent_checkpoint import Checkpointer, Record, TornTailWarning

FULL = os.environ.get("CHECKPOINT_TESTS", "quick") == "full"

# (seq, turn, data): what is the same whenever a record was saved.
Seen = tuple[int, int, Any]


def steps(end: int, *, quick: int, keep: Iterable[int] = ()) -> list[int]:
    """Return 0 to *end*; in quick mode each *quick*-th of them, *end* and those of *keep*."""
    if FULL:
        return list(range(end + 1))
    return sorted({*range(0, end + 1, quick), end, *(n for n in keep if 0 <= n <= end)})


# -- building -----------------------------------------------------------------------------


def body(turn: int, ts: float, data: object, meta: dict[str, Any] | None = None) -> bytes:
    """Return a line of the published format, without its closing brace."""
    members = {"turn": turn, "ts": ts, "data": data, "meta": meta or {}}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()[:-1]


def seal(text: bytes, seq: int, link: bytes, *, version: int = 1) -> tuple[bytes, bytes]:
    """Return the line that *text* becomes with its sum, newline included, and its mark."""
    stem = b"%d:%d:%d:%s:" % (version, seq, len(text), link)
    proven = b'%s,"sum":"%s' % (text, stem)
    crc = b"%08x" % crc32(proven)
    return b'%s%s"}\n' % (proven, crc), b"%08x" % crc32(stem + crc)


@dataclass(frozen=True)
class Log:
    """The lines of a log, newlines included, and the records that a reader sees in it."""

    lines: list[bytes]
    records: list[Seen]

    @cached_property
    def content(self) -> bytes:
        return b"".join(self.lines)

    @cached_property
    def starts(self) -> list[int]:
        return [0, *self.ends[:-1]]

    @cached_property
    def ends(self) -> list[int]:
        """Where each line ends, behind its newline."""
        return list(accumulate(map(len, self.lines)))

    def whole_in(self, offset: int) -> tuple[int, int]:
        """Return how many records are whole in the first *offset* bytes, and where they end.

        A line is whole without its newline.
        """
        number = sum(end - 1 <= offset for end in self.ends)
        return number, min(self.ends[number - 1], offset) if number else 0


def build(
    states: Sequence[object],
    *,
    has_sum: Callable[[int], bool] = lambda index: True,
    ts: Callable[[int], float] = lambda index: 1716566401.25 + index,
) -> Log:
    """Return a log of *states*; *has_sum* and *ts* are asked for each line."""
    lines: list[bytes] = []
    link = b"00000000"
    for index, state in enumerate(states):
        text = body(index + 1, ts(index), state)
        if has_sum(index):
            line, link = seal(text, index + 1, link)
        else:
            line = text + b"}\n"
            link = b"%08x" % crc32(line[:-1])
        lines.append(line)
    return Log(lines, [(n, n, state) for n, state in enumerate(states, start=1)])


def plain(states: Sequence[object]) -> Log:
    """Return a log in the published format, as other programs write it."""
    return build(states, has_sum=lambda index: False)


def mixed(states: Sequence[object]) -> Log:
    """Return a log whose first two lines of each three have no sum."""
    return build(states, has_sum=lambda index: index % 3 == 2)


# -- looking ------------------------------------------------------------------------------


def seen(records: Iterable[Record | None]) -> list[Seen]:
    return [(record.seq, record.turn, record.data) for record in records]


def put(path: Path, content: bytes) -> None:
    """Make *content* the content of the file at *path*.

    In place: ext4 writes a file through to the disk when it was first cut to nothing.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        assert os.write(fd, content) == len(content)
        os.ftruncate(fd, len(content))
    finally:
        os.close(fd)


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Return every name below *folder* with the bytes of the file, or what it is instead."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = f"mode {path.lstat().st_mode:o}"
    return found


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """Yield a folder for sweeps, which ask nothing of the disk: in memory, where there is that."""
    if not os.access("/dev/shm", os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="checkpoint-tests-", dir="/dev/shm") as name:
        yield Path(name)


# -- recovering ---------------------------------------------------------------------------

NEW = {"new": "state"}
_DROPPED = re.compile(r"ended in (\d+) bytes .* from byte (\d+) on")


def check_recovery(path: Path, content: bytes, kept: list[Seen], kept_end: int, case: str) -> None:
    """Check what a crash that left *content* costs: all behind *kept_end*, and nothing else.

    Reading shows *kept* and changes nothing; the next save drops the rest, says so and is there
    afterwards; nothing is left to be mended then.
    """
    put(path, content)
    torn = len(content) - kept_end

    ckpt = Checkpointer(path, durability="flush")
    last = ckpt.last_record
    records = seen(ckpt.records())
    report = ckpt.verify()

    assert records == kept, f"{case}: other records"
    assert seen([last] if last else []) == kept[-1:], f"{case}: another last record"
    assert report.damage is None, f"{case}: called damaged"
    assert (report.torn and report.torn[:2]) == ((kept_end, torn) if torn else None), case
    assert (report.records, report.bytes) == (len(kept), len(content)), f"{case}: other numbers"
    assert path.read_bytes() == content, f"{case}: reading changed the file"

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ckpt.save(NEW)
    ckpt.close()

    said = [str(warning.message) for warning in caught if warning.category is TornTailWarning]
    numbers = [tuple(map(int, found.groups())) for found in map(_DROPPED.search, said) if found]
    assert len(said) == len(caught), f"{case}: other warnings: {caught}"
    assert numbers == ([(torn, kept_end)] if torn else []), f"{case}: {said}"
    mended = path.read_bytes()
    glue = b"" if content[:kept_end].endswith(b"\n") or not kept_end else b"\n"
    assert mended.startswith(content[:kept_end] + glue + b'{"turn":'), f"{case}: kept other bytes"

    again = Checkpointer(path, durability="flush")
    expected = [*kept, (len(kept) + 1, (kept[-1][1] if kept else 0) + 1, NEW)]
    assert seen(again.records()) == expected, f"{case}: not the kept records and the new one"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.save(NEW)
    again.close()
    assert path.read_bytes().startswith(mended), f"{case}: a second recovery changed something"
