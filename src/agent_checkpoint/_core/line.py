r"""One record <-> one line.

    {"turn":1,"ts":1716566401.2,"data":{...},"meta":{...},"sum":"1:1:57:00000000:9d0c2c1b"}\n

Decided here: what a line is, and whether these bytes are one, whole. The ``sum`` is

    version ":" seq ":" length ":" link ":" crc

``length`` counts the bytes before ``,"sum":"``; ``link`` is the *mark* of the line before (eight
zeros before the first); ``crc`` is the CRC-32 of everything before it in the line, so it proves
the line without its neighbours. A line's mark is the CRC-32 of the text of its sum, and of the
whole line, without its newline, where it has no sum. A line without ``sum`` is a record too, if
it has the published members and no other: people and other programs write such lines.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast
from zlib import crc32

from .codec import BeyondReader, decode, decode_first

VERSION = 1
MAX_LINE_BYTES = 128 * 1024 * 1024
MAX_JSON_BYTES = MAX_LINE_BYTES - 256
"""What a line has room for beside turn, ts and sum."""
START = b"00000000"
"""The link of a log's first line."""

_SUM_KEY = b',"sum":"'
_SUM = re.compile(
    rb',"sum":"([0-9]{1,9}):([0-9]{1,18}):([0-9]{1,12}):([0-9a-f]{8}):([0-9a-f]{8})"\}'
)
_TURN = re.compile(rb'\{"turn":([0-9]{1,16}),')
_NEWER = re.compile(rb',"sum":"([0-9]{1,9}):[^"\\]*"\}\Z')
_LIKE_A_SUM = re.compile(rb':[0-9a-f]{8}:[0-9a-f]{8}"\}[ \t\r]*\Z')
_END_OF_SUM = re.compile(rb'[,"sum:0-9a-f]{0,60}"?\}')
_BLANKS = (b" ", b"\t", b"\r", b"\n")
_BEFORE_A_VALUE = (b":", b",", b"[")
_BEHIND_A_VALUE = (b",", b"]", b"}")
_SUM_SPAN = 96  # no sum of this version is longer
_QUOTE_OR_BRACKET = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_READABLE_DEPTH = 10_000  # no limit of a Python can be raised much further
_MEMBERS = frozenset(("turn", "ts", "data", "meta"))
MAX_TURN = 2**53 - 1
"""The largest turn: above it, readers that hold numbers as doubles (jq) would round."""


MAX_SEQ = 10**18 - 1


class Seal(NamedTuple):
    """A line that proved itself: where it lies in the bytes looked at, and what its sum says."""

    start: int
    end: int  # without the newline
    seq: int
    link: bytes
    mark: bytes


class Fields(NamedTuple):
    """The four published members of a line."""

    turn: int
    ts: float
    data: Any
    meta: dict[str, Any]


class Position(NamedTuple):
    """Where a log ends: what a writer has to have seen before it may append."""

    seq: int
    mark: bytes
    turn: int


EMPTY = Position(0, START, 0)


class NotARecord(ValueError):
    """These bytes are not a record; ``str()`` says why. Those who know where make it an error."""


def body(turn: int, ts: float, data: bytes, meta: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a line up to its sum, in parts, from the JSON of its state and of its tags."""
    # In parts, so that there is one copy of the state: it may be large.
    return b'{"turn":%d,"ts":%r,"data":' % (turn, ts), data, b',"meta":%s' % meta


def seal(body: tuple[bytes, bytes, bytes], seq: int, link: bytes) -> tuple[bytes, bytes]:
    """Return the finished line, newline included, and its mark."""
    head, data, foot = body
    stem = b"%d:%d:%d:%s:" % (VERSION, seq, len(head) + len(data) + len(foot), link)
    foot = b"%s%s%s" % (foot, _SUM_KEY, stem)
    text = b"%s%08x" % (stem, crc32(foot, crc32(data, crc32(head))))
    return b'%s%s%s%s"}\n' % (head, data, foot, text[-8:]), b"%08x" % crc32(text)


def body_of(line: bytes) -> bytes:
    """Return what stands before the sum of a line that has one."""
    return line[: line.rindex(_SUM_KEY)]


def mark_of(line: bytes) -> bytes:
    """Return the mark of a line that has no sum."""
    return b"%08x" % crc32(line)


def prove(buf: bytes, start: int, end: int) -> Seal | None:
    """Return the seal of ``buf[start:end]`` if it is one line, whole and unchanged."""
    key = buf.rfind(_SUM_KEY, max(start, end - _SUM_SPAN), end)
    found = _SUM.fullmatch(buf, key, end) if key >= 0 else None
    if found is None or int(found[1]) != VERSION:
        return None
    if int(found[3]) != key - start:
        return None
    if crc32(memoryview(buf)[start : found.start(5)]) != int(found[5], 16):
        return None
    if _TURN.match(buf, start) is None:
        return None
    return Seal(start, end, int(found[2]), found[4], b"%08x" % crc32(found[0][8:-2]))


def newer_version_of(line: bytes) -> int:
    """Return the version of the sum of *line* if it is a newer one, else 0.

    What such a line holds, and how it proves itself, is not for this release to judge.
    """
    found = _NEWER.search(line)
    version = int(found[1]) if found else 0
    if found is None or version <= VERSION:
        return 0
    if is_a_bit_from_whole(line, found.start(1), found.end(1)):
        return 0  # the bit made a 3 of the 1, or a digit of the colon behind it
    if b"\0" not in line:
        # A member of the state may be called sum as well.
        try:
            members = decode(line)
        except ValueError:
            return 0
        except BeyondReader:
            return version
        if not isinstance(members, dict) or "sum" not in members:
            return 0
    return version


def is_a_bit_from_whole(line: bytes, start: int, end: int) -> bool:
    """Tell whether *line* proves itself with one bit turned in ``line[start:end]``."""
    return any(
        is_whole(line[:at] + bytes((line[at] ^ 1 << bit,)) + line[at + 1 :])
        for at in range(start, end)
        for bit in range(8)
    )


def turn_in(line: bytes) -> int:
    """Return the turn of a line that proved itself."""
    found = _TURN.match(line)
    return int(found[1]) if found else 0


def begins_without_sum(line: bytes) -> bool:
    """Tell whether *line* begins with a whole JSON object that has no member "sum"."""
    try:
        members = decode_first(line)
    except ValueError:
        return False
    return isinstance(members, dict) and "sum" not in members


def is_whole(line: bytes) -> bool:
    """Tell whether *line* proves itself."""
    return prove(line, 0, len(line)) is not None


def is_end_of_first(line: bytes) -> bool:
    """Tell whether *line* ends as the first line of a log does, however much of it was lost."""
    found = _SUM.fullmatch(line, max(0, line.rfind(_SUM_KEY)))
    if found is not None:
        return found[4] == START
    return _END_OF_SUM.fullmatch(line.lstrip(b"\0")) is not None


def _is_inside_another(buf: bytes, start: int, end: int) -> bool:
    # A line follows a newline, and JSON never puts a value where a newline may be damaged: the
    # member or element before it ends in one of these, or the one behind it begins with one.
    return buf[start - 1 : start] in _BEFORE_A_VALUE or buf[end : end + 1] in _BEHIND_A_VALUE


def proven_in(buf: bytes) -> list[Seal]:
    """Return every whole line that lies anywhere in *buf*, whatever stands around it.

    Searched by length and sum, not by newlines, since a newline may be what was damaged. A record
    that lies *inside* another as part of its data (an agent that keeps a log of logs) is not a line
    of this log: it has a colon, a comma or a bracket on either side.
    """
    seals: list[Seal] = []
    for found in _SUM.finditer(buf):
        start = found.start() - int(found[3])
        if start < 0 or _is_inside_another(buf, start, found.end()):
            continue
        if int(found[1]) == VERSION:
            seal = prove(buf, start, found.end())
            if seal is not None:
                seals.append(seal)
    return seals


def last_proven_in(buf: bytes) -> Seal | None:
    """Return the whole line that ends last in *buf*; None also if it may begin before *buf*."""
    stop = len(buf)
    while True:
        key = buf.rfind(_SUM_KEY, 0, stop)
        if key < 0:
            return None
        stop = key
        found = _SUM.match(buf, key)
        if found is None or int(found[1]) != VERSION:
            continue
        start = key - int(found[3])
        if start < 0:
            return None
        if _is_inside_another(buf, start, found.end()):
            continue
        seal = prove(buf, start, found.end())
        if seal is not None:
            return seal


def mark_before(buf: bytes, end: int) -> bytes | None:
    """Return the mark of the line that ends at *end*; None if it has no sum to be seen here."""
    while buf[end - 1 : end] in _BLANKS:
        end -= 1
    key = buf.rfind(_SUM_KEY, max(0, end - _SUM_SPAN), end)
    found = _SUM.fullmatch(buf, key, end) if key >= 0 else None
    return None if found is None else b"%08x" % crc32(found[0][8:-2])


def read_sealed(line: bytes) -> Fields:
    """Return the members of a line that proved itself."""
    members = _members(line)
    members.pop("sum", None)
    return _fields(members)


def read_plain(line: bytes) -> Fields:
    """Return the members of a line without sum; NotARecord if it is none."""
    members = _members(line)
    if "sum" in members:
        raise NotARecord("its sum does not fit its bytes")
    if _LIKE_A_SUM.search(line):
        raise NotARecord("it ends like a sum: bytes before that are missing")
    return _fields(members)


def _members(line: bytes) -> dict[str, Any]:
    try:
        members = decode(line)
    except UnicodeDecodeError:
        raise NotARecord("it is not UTF-8") from None
    except ValueError:
        has_mark = line.startswith(b"\xef\xbb\xbf")
        raise NotARecord(
            "it begins with a byte order mark" if has_mark else "it is not JSON"
        ) from None
    except BeyondReader:
        if _depth_of(line) > _READABLE_DEPTH:
            raise NotARecord(f"it is nested more than {_READABLE_DEPTH} levels deep") from None
        raise
    if type(members) is not dict:
        raise NotARecord("it is JSON, but not an object")
    return cast("dict[str, Any]", members)


def _depth_of(line: bytes) -> int:
    """Return how deep the containers of *line* are nested, without recursion."""
    deepest = depth = 0
    is_in_string = False
    for found in _QUOTE_OR_BRACKET.finditer(line):
        token = found[0]
        if token == b'"':
            is_in_string = not is_in_string
        elif is_in_string:
            continue
        elif token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in b"]}":
            depth -= 1
    return deepest


def _fields(members: dict[str, Any]) -> Fields:
    if "turn" not in members or "ts" not in members or "data" not in members:
        missing = next(name for name in ("turn", "ts", "data") if name not in members)
        raise NotARecord(f"it is JSON, but not a record: it has no {missing!r}")
    if not _MEMBERS.issuperset(members):
        extra = sorted(set(members) - _MEMBERS)[0]
        raise NotARecord(f"it is JSON, but a record has no member {ascii(extra)[:60]}")
    turn, ts, meta = members["turn"], members["ts"], members.get("meta")
    if type(turn) is not int or not 0 <= turn <= MAX_TURN:
        raise NotARecord("its turn is not a whole number from 0 up")
    if type(ts) not in (int, float):
        raise NotARecord("its ts is not a number")
    if meta is None:
        meta = {}
    elif type(meta) is not dict:
        raise NotARecord("its meta is not an object")
    return Fields(turn, ts, members["data"], meta)
