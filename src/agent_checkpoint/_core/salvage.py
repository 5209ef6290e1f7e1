"""A damaged log -> every record in it that is whole.

Decided here: which of them are kept, and in which order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..report import Damage
from .codec import BeyondReader
from .line import NotARecord, mark_of, prove, proven_in, read_plain
from .scan import BLANK, Entry, newer_line, pieces


class Survivor(NamedTuple):
    """A record found whole in a damaged log; ``end`` is before its newline."""

    seq: int
    start: int
    end: int
    sealed: bool


def survivors(chunks: Iterable[bytes]) -> tuple[list[Survivor], Damage | None]:
    """Return every record that is whole, in the order of their seqs, each once.

    And the first line of a newer format: what it holds is not for this release to judge.
    """
    sealed: dict[int, Survivor] = {}
    plain: list[Survivor] = []
    newer: Damage | None = None
    seq = 0
    for piece in pieces(chunks):
        if piece.line is None:
            continue
        seals = proven_in(piece.line)
        for seal in seals:
            seq = seal.seq
            start, end = piece.offset + seal.start, piece.offset + seal.end
            sealed.setdefault(seq, Survivor(seq, start, end, True))
        if not seals and piece.line.strip(BLANK):
            newer = newer or newer_line(piece, seq + 1)
            try:
                read_plain(piece.line)
            except NotARecord:
                continue
            except BeyondReader as beyond:
                if piece.terminated and b"\0" not in piece.line:
                    raise BeyondReader(beyond.reason, seq + 1) from None
                continue
            seq += 1
            plain.append(Survivor(seq, piece.offset, piece.offset + piece.length, False))
    return _in_order(sealed, plain), newer


def _in_order(sealed: dict[int, Survivor], plain: list[Survivor]) -> list[Survivor]:
    """Put lines without a sum where they stood, or behind all others where there is no room."""
    kept = dict(sealed)
    homeless: list[Survivor] = []
    for survivor in plain:
        if kept.setdefault(survivor.seq, survivor) is not survivor:
            homeless.append(survivor)
    ordered = [kept[seq] for seq in sorted(kept)]
    for survivor in homeless:
        ordered.append(survivor._replace(seq=ordered[-1].seq + 1))
    return ordered


def entry_of(survivor: Survivor, line: bytes) -> Entry:
    """Return the record that *survivor* found, from its bytes."""
    seal = prove(line, 0, len(line)) if survivor.sealed else None
    if seal is not None:
        return Entry(survivor.start, survivor.end, seal.seq, seal.mark, line, None, True)
    plain, mark = read_plain(line), mark_of(line)
    return Entry(survivor.start, survivor.end, survivor.seq, mark, line, plain, True)
