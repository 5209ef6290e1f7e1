"""The last bytes of a log -> its last record, without the rest of the log.

Decided here: when the end alone is enough to know what a scan of the whole log would find there.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..report import Torn
from .codec import BeyondReader
from .line import MAX_LINE_BYTES, START, last_proven_in, mark_before, newer_version_of
from .scan import BLANK, Entry, has_lost_bytes, is_of_a_stranger

_BEFORE_A_LINE = 128  # bytes in which the sum of the line before is found


class Tail(NamedTuple):
    """The end of a log: its last record, and what is torn behind it."""

    last: Entry
    torn: Torn | None


def tail(buf: bytes, base: int) -> Tail | Literal["more", "unclear"]:
    """Judge a log by its last bytes *buf*, which begin at offset *base*.

    "more": a longer *buf* may decide. "unclear": only a Scan does.
    """
    seal = last_proven_in(buf)
    if seal is None or (seal.start < _BEFORE_A_LINE and base > 0):
        return "unclear" if seal is None and _is_plain_end(buf) else "more"
    if seal.start == 0:
        if seal.link != START:
            return "unclear"
    elif buf[seal.start - 1] != 0x0A or mark_before(buf, seal.start - 1) != seal.link:
        return "unclear"
    end = seal.end
    while buf[end : end + 1].strip(BLANK) != buf[end : end + 1]:
        end += 1
    terminated = buf[end : end + 1] == b"\n"
    end += terminated
    if not terminated and end < len(buf):
        end = seal.end  # blanks that belong to what stands behind them
    torn = None
    if buf[end:].strip(BLANK + b"\n"):
        *lines, rest = buf[end:].split(b"\n")
        # The usual remains of a crash are judged here; a stranger's line is Scan's business.
        if not all(map(has_lost_bytes, lines)) or any(map(newer_version_of, [*lines, rest])):
            return "unclear"
        if any(len(line) > MAX_LINE_BYTES for line in (*lines, rest)):
            return "unclear"
        try:
            is_record = is_of_a_stranger(rest)
        except BeyondReader:
            return "unclear"
        if is_record or not rest.strip(BLANK):
            return "unclear"
        torn = Torn(base + end, len(buf) - end, buf[end : end + 80].split(b"\n")[0])
    last = Entry(
        base + seal.start, base + end, seal.seq, seal.mark, buf[seal.start : seal.end], None,
        terminated,
    )  # fmt: skip
    return Tail(last, torn)


def _is_plain_end(buf: bytes) -> bool:
    """Tell whether a log ends in a line without a sum, so that its seq has to be counted."""
    line = buf.rstrip(BLANK + b"\n").rpartition(b"\n")[2]
    return line.endswith(b"}") and b'"sum":"' not in line[-96:]
