"""A log's bytes -> its records, and a verdict on the rest: torn or damaged.

Decided here, and nowhere else:

- A line that proves itself and follows the one before it is a record. So is a line without sum
  that has the published members; blank lines are nothing.
- What stands behind the last record is *torn* if a crash can have left it: a last line without
  its newline, or lines that hold NUL bytes (sectors that never reached the disk). A whole record
  whose newline alone is missing is a record.
- Everything else is *damage*: a terminated line without NULs that is no record, wherever it
  stands; a line that does not follow the one before it; anything bad with a record behind it.

Torn bytes were never acknowledged and may be dropped. Damaged bytes were, and may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..report import Damage, Torn
from .codec import BeyondReader
from .line import (
    MAX_LINE_BYTES,
    START,
    Fields,
    NotARecord,
    Position,
    Seal,
    begins_without_sum,
    is_a_bit_from_whole,
    is_end_of_first,
    mark_of,
    newer_version_of,
    prove,
    proven_in,
    read_plain,
    read_sealed,
    turn_in,
)

_HEAD = b'{"turn":'
_TOO_LONG = f"a line longer than {MAX_LINE_BYTES} bytes, more than this release reads"
BLANK = b" \t\r"


class Entry(NamedTuple):
    """A record and where it lies; ``end`` is behind its newline, if it has one."""

    start: int
    end: int
    seq: int
    mark: bytes
    line: bytes
    plain: Fields | None  # read already, for a line without sum
    terminated: bool

    @property
    def turn(self) -> int:
        """The turn, without reading the state."""
        return turn_in(self.line) if self.plain is None else self.plain.turn

    @property
    def position(self) -> Position:
        """Where the log ends, if this is its last record."""
        return Position(self.seq, self.mark, self.turn)

    def fields(self) -> Fields:
        """Read the members; NotARecord or BeyondReader if that cannot be."""
        try:
            return read_sealed(self.line) if self.plain is None else self.plain
        except BeyondReader as beyond:
            raise BeyondReader(beyond.reason, self.seq) from None


class Piece(NamedTuple):
    """The bytes between two newlines; ``line`` is None where they are longer than any line."""

    offset: int
    length: int
    line: bytes | None
    terminated: bool
    nuls_only: bool = False


def pieces(chunks: Iterable[bytes], offset: int = 0) -> Iterator[Piece]:
    """Split *chunks* at ``\\n``, and there only, holding no more than one line at a time."""
    parts: list[bytes] = []
    length = 0
    too_long = nuls_only = False

    def join(last: bytes, *, terminated: bool) -> Piece:
        total = length + len(last)
        if too_long or total > MAX_LINE_BYTES:
            only = (nuls_only or not too_long) and not any(p.strip(b"\0") for p in (*parts, last))
            return Piece(offset, total, None, terminated, only)
        return Piece(offset, total, b"".join((*parts, last)) if parts else last, terminated)

    for chunk in chunks:
        lines = chunk.split(b"\n")
        last = lines.pop()
        for line in lines:
            piece = join(line, terminated=True)
            yield piece
            offset += piece.length + 1
            if parts or too_long:
                parts, length, too_long = [], 0, False
        if last:
            parts.append(last)
            length += len(last)
            if length > MAX_LINE_BYTES:
                nuls_only = (nuls_only or not too_long) and not any(p.strip(b"\0") for p in parts)
                parts, too_long = [], True
    if length:
        yield join(b"", terminated=False)


class Scan:
    """Iterate over the records of a log from its first byte; then ask what the rest is."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.last: Entry | None = None
        self.torn: Torn | None = None
        self.damage: Damage | None = None
        self.is_foreign = False  # damaged from the start, which looks like no log's
        self._pieces = pieces(chunks)

    @property
    def end(self) -> int:
        """Where the last record ends."""
        return self.last.end if self.last else 0

    @property
    def seq(self) -> int:
        return self.last.seq if self.last else 0

    @property
    def mark(self) -> bytes:
        return self.last.mark if self.last else START

    def __iter__(self) -> Iterator[Entry]:
        try:
            yield from self._records()
        except BeyondReader as beyond:
            raise BeyondReader(beyond.reason, self.seq + 1) from None

    def _records(self) -> Iterator[Entry]:
        for piece in self._pieces:
            entry, reason = self._read(piece)
            if entry is not None:
                self.last = entry
                yield entry
            elif reason:
                self.damage = newer_line(piece, self.seq + 1)
                if self.damage is not None:
                    return
                head = self._head_of(piece)
                if head is not None:
                    self.last = head
                    yield head
                    piece = _rest(piece, head)
                self._judge(piece, reason)
                return

    def _read(self, piece: Piece) -> tuple[Entry | None, str]:
        """Return the record that *piece* is, or why it is none; neither for a blank line."""
        line = piece.line
        if line is None:
            return None, _TOO_LONG
        end = piece.offset + piece.length + piece.terminated
        text = line.rstrip(BLANK)  # blanks are an editor's doing, or of a system that writes CR LF
        if not text:
            return None, ""
        seal = prove(text, 0, len(text))
        if seal is not None:
            reason = self._misplaced(seal)
            if reason:
                return None, reason
            return Entry(piece.offset, end, seal.seq, seal.mark, text, None, piece.terminated), ""
        try:
            fields = read_plain(line)
        except NotARecord as why:
            return None, str(why)
        except BeyondReader as beyond:
            if not piece.terminated or b"\0" in line:
                return None, beyond.reason
            raise
        return (
            Entry(piece.offset, end, self.seq + 1, mark_of(line), line, fields, piece.terminated),
            "",
        )

    def _misplaced(self, seal: Seal) -> str:
        if seal.link != self.mark:
            return (
                f"record {seal.seq} stands here, but the line before it is not the one it was"
                " written behind: a line was removed, doubled, moved or changed"
            )
        if seal.seq <= self.seq:
            return f"record {seal.seq} stands here, behind record {self.seq}"
        return ""

    def _head_of(self, piece: Piece) -> Entry | None:
        """Return the whole record that a bad piece begins with, if it does."""
        if piece.line is None:
            return None
        for seal in proven_in(piece.line):
            if seal.start == 0 and seal.end < len(piece.line) and not self._misplaced(seal):
                line = piece.line[: seal.end]
                end = piece.offset + seal.end
                return Entry(piece.offset, end, seal.seq, seal.mark, line, None, False)
        return None

    def _judge(self, first: Piece, reason: str) -> None:
        """Decide whether the bad bytes from *first* on are torn or damaged."""
        length = 0
        piece: Piece | None = first
        while piece is not None:
            why = _damage_in(piece, reason, is_first=piece is first)
            if why:
                self.is_foreign = not self.last and not _begins_like_a_log(first, is_alone=False)
                self.damage = Damage(first.offset, self.seq + 1, why)
                return
            length += piece.length + piece.terminated
            piece = next(self._pieces, None)
        is_alone = length == first.length + first.terminated
        if self.last is None and not _begins_like_a_log(first, is_alone=is_alone):
            self.is_foreign = True
            self.damage = Damage(first.offset, 1, reason)
            return
        self.torn = Torn(first.offset, length, (first.line or b"")[:80])


def newer_line(piece: Piece, seq: int) -> Damage | None:
    """Return the place of *piece* if it is a line of a newer format, which is never torn."""
    if piece.line is None or (not piece.terminated and b"\0" in piece.line):
        return None
    version = newer_version_of(piece.line)
    return Damage(piece.offset, seq, "its format is newer", version) if version else None


def _rest(piece: Piece, head: Entry) -> Piece:
    taken = head.end - piece.offset
    line = (piece.line or b"")[taken:]
    return Piece(head.end, len(line), line, piece.terminated)


def _damage_in(piece: Piece, reason: str, *, is_first: bool) -> str:
    """Return why *piece*, a bad one or one behind a bad one, is not what a crash leaves."""
    line = piece.line
    if line is None:
        return "" if piece.nuls_only else _TOO_LONG
    if proven_in(line):
        return reason if is_first else f"{reason}; whole records stand behind it"
    if newer_line(piece, 0) is not None:
        return f"{reason}; a line of a newer format stands behind it"
    if not piece.terminated:
        return reason if is_of_a_stranger(line) else ""
    if not has_lost_bytes(line):
        return reason
    return ""


def has_lost_bytes(line: bytes) -> bool:
    """Tell whether the NULs of a terminated line are what a write that never ended leaves.

    A space and an @ are one flipped bit away from NUL: if turning a bit of the only NUL makes the
    line prove itself, the line was whole once, and its damage is no torn write.
    """
    count = line.count(0)
    if count != 1:
        return count > 1
    at = line.index(0)
    return not is_a_bit_from_whole(line, at, at + 1)


def is_of_a_stranger(line: bytes) -> bool:
    """Tell whether *line* was written so by a stranger: cutting a line never leaves an object."""
    return b"\0" not in line and begins_without_sum(line)


def _begins_like_a_log(piece: Piece, *, is_alone: bool) -> bool:
    """Tell whether a file without any record, whose first piece is *piece*, can be a torn log."""
    line = piece.line
    if line is None:
        return piece.nuls_only and is_alone
    if line.startswith(_HEAD):
        return True
    if not line.strip(b"\0"):
        return is_alone
    if line.startswith(b"\0"):
        # Its first sectors were lost. Other files begin with NULs too; none ends like a log.
        return piece.terminated and is_end_of_first(line)
    return not piece.terminated and _HEAD.startswith(line.rstrip(b"\0"))
