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
    homeless: list[Survivor] = []
    for survivor in _whole_in(chunks):
        first = taken.setdefault(survivor.seq, survivor)
        if first is not survivor and first.mark != survivor.mark:
            homeless.append(survivor)
    kept = [taken[seq] for seq in sorted(taken)]
    for survivor in homeless:
        kept.append(survivor._replace(seq=kept[-1].seq + 1))
    return kept


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
    unnumbered: list[Survivor | None] = []  # lines without a sum; None where one is damaged
    for piece in pieces(chunks):
        if piece.line is None:
            continue
        seals = proven_in(piece.line)
        for seal in seals:
            yield from _numbered(unnumbered, seq, seal.seq)
            unnumbered, seq = [], seal.seq
            start, end = piece.offset + seal.start, piece.offset + seal.end
            yield Survivor(seq, start, end, seal.mark, True)
        if not seals and piece.line.strip(BLANK):
            unnumbered.append(_plain_of(piece, seq + len(unnumbered) + 1))
    yield from _numbered(unnumbered, seq, None)


def _plain_of(piece: Piece, seq: int) -> Survivor | None:
    line = piece.line or b""
    try:
        read_plain(line)
    except NotARecord:
        return None
    except BeyondReader as beyond:
        if not piece.terminated or b"\0" in line:
            return None
        raise BeyondReader(beyond.reason, seq) from None
    return Survivor(seq, piece.offset, piece.offset + piece.length, mark_of(line), False)


def _numbered(lines: list[Survivor | None], seq: int, next_seq: int | None) -> Iterator[Survivor]:
    """Number *lines* from behind *seq*; a damaged one had a number too, if there is one for it."""
    has_room = next_seq is None or seq + len(lines) < next_seq
    for line in lines:
        if line is not None or has_room:
            seq += 1
        if line is not None:
            yield line._replace(seq=seq)
