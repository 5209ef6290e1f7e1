"""Put another content in a log's place in one step: a crash leaves the old one or the new one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from itertools import count
from zlib import crc32

from .._core.line import EMPTY, Position, body_of, mark_of, seal
from .._core.scan import Entry
from . import _fsio, _lock

# File systems without a second name for a file: FAT, many that are mounted over a network.
_NO_LINKS_HERE = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_ENOUGH_BYTES = 1024 * 1024
_LONGEST_NAME = 220


def write_anew(path: str, entries: Iterable[Entry], user: int) -> _lock.Held:
    """Write *entries*, chained anew, to a file beside the log, and return it held and synced."""
    temporary = _temporary(path)
    _fsio.remove_if_there(temporary)  # an earlier crash may have left it
    new = _lock.adopt(temporary, user)
    try:
        _fsio.take_mode(new.fd, path)
        for payload, position in _resealed(entries):
            _fsio.write_all(new.fd, payload)
            new.end, new.position = new.end + len(payload), position
        _fsio.sync(new.fd)
        new.durable_end = new.end
    except BaseException:
        _lock.abandon(new)
        _fsio.remove_if_there(temporary)
        raise
    return new


def put_in_place(path: str, new: _lock.Held, *, is_old_kept: bool) -> str:
    """Let the file written anew take the name of the log; return the name that the old one has."""
    try:
        aside = _set_aside(path) if is_old_kept else ""
        _fsio.rename(_temporary(path), path)
    except BaseException:
        _lock.abandon(new)
        _fsio.remove_if_there(_temporary(path))
        raise
    return aside


def _set_aside(path: str) -> str:
    """Give the log a second name, which its bytes keep when another file takes the first."""
    folder, name = os.path.split(path)
    for number in count(1):
        aside = os.path.join(folder, f"{_shortened(name)}.damaged-{number}")
        try:
            try:
                _fsio.link(path, aside)
            except OSError as error:
                if error.errno not in _NO_LINKS_HERE:
                    raise
                _copy(path, aside)
        except FileExistsError:
            if _fsio.identity_at(aside) != _fsio.identity_at(path):
                continue  # else a crash came between this name and the new file
        _fsio.sync_folder(folder)
        return aside
    raise AssertionError


def _copy(source: str, target: str) -> None:
    reading = _fsio.open_read(source)
    try:
        writing = _fsio.open_new(target)
        try:
            for chunk in _fsio.chunks(reading):
                _fsio.write_all(writing, chunk)
            _fsio.sync(writing)
        except BaseException:
            _fsio.remove_if_there(target)
            raise
        finally:
            _fsio.close(writing)
    finally:
        _fsio.close(reading)


def remove_leftover(path: str) -> None:
    """Remove what a crash in the middle of a replacement left; the caller holds the lock."""
    _fsio.remove_if_there(_temporary(path))


def _temporary(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{_shortened(name)}.rewrite")


def _shortened(name: str) -> str:
    """Return *name* with room for what is put around it: names have 255 bytes at the most."""
    encoded = os.fsencode(name)
    if len(encoded) <= _LONGEST_NAME:
        return name
    return os.fsdecode(encoded[:_LONGEST_NAME]) + f"-{crc32(encoded):08x}"


def _resealed(entries: Iterable[Entry]) -> Iterator[tuple[bytes, Position]]:
    position = EMPTY
    lines: list[bytes] = []
    size = 0
    for entry in entries:
        if entry.plain is None:
            line, mark = seal((body_of(entry.line), b"", b""), entry.seq, position.mark)
        else:
            line, mark = entry.line + b"\n", mark_of(entry.line)
        position = Position(entry.seq, mark, entry.turn)
        lines.append(line)
        size += len(line)
        if size >= _ENOUGH_BYTES:
            yield b"".join(lines), position
            lines, size = [], 0
    if lines:
        yield b"".join(lines), position
