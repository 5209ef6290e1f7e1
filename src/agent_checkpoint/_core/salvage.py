"""A damaged log -> every record in it that is whole.

Decided here: which of them are kept, under which seqs and in which order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..report import Damage
from .codec import BeyondReader
from .line import NotARecord, mark_of, proven_in, read_plain
from .scan import BLANK, Entry, Piece, newer_line, pieces


class Survivor(NamedTuple):
    """A record found whole in a damaged log; ``end`` is before its newline."""

    seq: int
    start: int
    end: int
    mark: bytes
    is_sealed: bool


def survivors(chunks: Iterable[bytes]) -> list[Survivor]:
    """Return every record that is whole, in the order of their seqs, each once.

    A line that was doubled is one record. Other records whose seq is taken, as in two logs that
    were joined, come behind all others, under new seqs, in the order in which they stand.
    """
    taken: dict[int, Survivor] = {}
    plain: list[Survivor] = []
    homeless: list[Survivor] = []
    for survivor in _whole_in(chunks):
        if not survivor.is_sealed:
            plain.append(survivor)
        elif taken.setdefault(survivor.seq, survivor).mark != survivor.mark:
            homeless.append(survivor)
    known = {survivor.mark for survivor in taken.values()}
    for survivor in plain:
        if taken.setdefault(survivor.seq, survivor) is not survivor and survivor.mark not in known:
            homeless.append(survivor)
        known.add(survivor.mark)
    ordered = [taken[seq] for seq in sorted(taken)] + sorted(homeless, key=_start_of)
    seq = 0
    for index, survivor in enumerate(ordered):
        # A line without a sum has its number from its place.
        is_free = survivor.is_sealed and survivor.seq > seq
        seq = survivor.seq if is_free else seq + 1
        ordered[index] = survivor._replace(seq=seq)
    return ordered


def _start_of(survivor: Survivor) -> int:
    return survivor.start


def has_records(chunks: Iterable[bytes]) -> bool:
    """Tell whether there is any whole record."""
    return next(_whole_in(chunks), None) is not None


def newer_line_in(chunks: Iterable[bytes]) -> Damage | None:
    """Return the first line of a newer format: what it holds is not for this release to judge."""
    found = (newer_line(piece, 0) for piece in pieces(chunks))
    return next(filter(None, found), None)


def entry_of(survivor: Survivor, line: bytes) -> Entry:
    """Return the record that *survivor* found, from its bytes."""
    plain = None if survivor.is_sealed else read_plain(line)
    return Entry(survivor.start, survivor.end, survivor.seq, survivor.mark, line, plain, True)


def _whole_in(chunks: Iterable[bytes]) -> Iterator[Survivor]:
    """Yield the whole records in the order in which they stand."""
    seq = 0
    for piece in pieces(chunks):
        if piece.line is None:
            continue
        seals = proven_in(piece.line)
        for seal in seals:
            seq = seal.seq
            start, end = piece.offset + seal.start, piece.offset + seal.end
            yield Survivor(seq, start, end, seal.mark, True)
        if not seals and piece.line.strip(BLANK) and _is_plain(piece, seq + 1):
            seq += 1
            end = piece.offset + piece.length
            yield Survivor(seq, piece.offset, end, mark_of(piece.line), False)


def _is_plain(piece: Piece, seq: int) -> bool:
    line = piece.line or b""
    try:
        read_plain(line)
    except NotARecord:
        return False
    except BeyondReader as beyond:
        if not piece.terminated or b"\0" in line:
            return False
        raise BeyondReader(beyond.reason, seq) from None
    return True
