"""A disk that keeps what was synced and may lose the rest: what a power cut can leave.

A Recorder notes what the package really does to files and folders. Disk replays that and knows, at
each point, which bytes and names are safe; ``states`` are the folders that a machine may find when
it comes up again. After ALICE (Pillai et al., OSDI 2014), in small. The model:

- Bytes are safe once the file was synced after they were written. Until then a write is there,
  not there, there in part, or there as NULs: the size reached the disk and the bytes did not.
  Writes reach it in order; a truncation may be the one step that does not.
- A name is safe once its folder was synced. Until then each change of a folder is there or not.
- After a sync that failed, later ones call the bytes that it did not write safe, and lie.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any, NamedTuple

SECTOR = 512


class Event(NamedTuple):
    """Something that was done to the disk, or that a caller of save() did or was told."""

    kind: str
    args: tuple[Any, ...]


class Recorder:
    """Notes what is done below *root*; *send* gets each event once it has happened."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send

    def note(self, kind: str, *args: Any) -> None:
        self._send(Event(kind, args))

    def watch(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return *real*, the operation *name*, noting what it does."""
        act = getattr(self, f"_{name}", None)
        return real if act is None else lambda *args: act(real, *args)

    def _open(self, real: Callable[..., int], path: str, *args: Any) -> int:
        is_new = not os.path.lexists(path)
        fd = real(path, *args)
        if is_new:
            self.note("create", *_place(path), os.fstat(fd).st_ino)
        return fd

    def _mkdir(self, real: Callable[..., None], path: str, *args: Any) -> None:
        real(path, *args)
        self.note("mkdir", *_place(path), os.stat(path).st_ino)

    def _link(self, real: Callable[..., None], source: str, target: str) -> None:
        real(source, target)
        self.note("link", *_place(target), os.stat(target).st_ino)

    def _replace(self, real: Callable[..., None], source: str, target: str) -> None:
        real(source, target)
        self.note("rename", *_place(target), os.path.basename(source))

    def _unlink(self, real: Callable[..., None], path: str) -> None:
        real(path)
        self.note("unlink", *_place(path))

    def _write(self, real: Callable[..., int], fd: int, data: bytes) -> int:
        before = os.fstat(fd)
        written = real(fd, data)
        self.note("write", before.st_ino, before.st_size, bytes(data[:written]))
        return written

    def _ftruncate(self, real: Callable[..., None], fd: int, length: int) -> None:
        real(fd, length)
        self.note("truncate", os.fstat(fd).st_ino, length)

    def _fdatasync(self, real: Callable[..., None], fd: int) -> None:
        real(fd)
        self.note("sync", os.fstat(fd).st_ino)

    _fsync = _fdatasync


def _place(path: str) -> tuple[int, str]:
    folder, name = os.path.split(path)
    return os.stat(folder).st_ino, name


class _File:
    """The bytes of a file: on the disk, and behind them what has not been synced."""

    def __init__(self, content: bytes) -> None:
        self.on_disk = [content]  # more than one after a failed sync: who knows
        self.pending: list[tuple[int, bytes | None]] = []  # a write at, or a truncation to
        self.cache = content
        self.lies: list[tuple[int, int]] = []  # what a failed sync did not write

    def write(self, at: int, data: bytes) -> None:
        self.pending.append((at, data))
        self.cache = _apply(self.cache, at, data)

    def truncate(self, length: int) -> None:
        self.pending.append((length, None))
        self.cache = _apply(self.cache, length, None)
        self.lies = [(start, min(end, length)) for start, end in self.lies if start < length]

    def sync(self) -> None:
        self.on_disk, self.pending = [self._without_lies()], []

    def fail_to_sync(self) -> None:
        before = self.on_disk
        self.lies += [(at, at + len(data)) for at, data in self.pending if data is not None]
        self.lies = [(at, min(end, len(self.cache))) for at, end in self.lies]
        self.sync()
        self.on_disk += [self.cache, *before]

    @property
    def is_safe(self) -> bool:
        return not self.pending and not self.lies

    def states(self) -> Iterator[bytes]:
        for content in self.on_disk:
            yield content
            for number, (at, data) in enumerate(self.pending):
                if data is None:
                    later = content
                    for step in self.pending[number + 1 :]:
                        later = _apply(later, *step)
                    yield later
                else:
                    for part in _parts_of(at, data):
                        yield _apply(content, at, part)
                content = _apply(content, at, data)
                yield content

    def _without_lies(self) -> bytes:
        content = self.cache
        for start, end in self.lies:
            content = content[:start] + bytes(end - start) + content[end:]
        return content


def _apply(content: bytes, at: int, data: bytes | None) -> bytes:
    if data is None:
        return content[:at].ljust(at, b"\0")
    return content[:at].ljust(at, b"\0") + data + content[at + len(data) :]


def _parts_of(at: int, data: bytes) -> Iterator[bytes]:
    """Yield what may reach the disk of *data*, written at offset *at*, but for all and nothing."""
    size = len(data)
    borders = range(SECTOR - at % SECTOR, size, SECTOR)
    for cut in {1, size // 2, size - 1, *list(borders)[:3], *list(borders)[-2:]} & {*range(size)}:
        yield data[:cut]
        yield data[:cut].ljust(size, b"\0")
    yield bytes(size)
    for border in list(borders)[:3]:
        yield (data[:border] + bytes(SECTOR) + data[border + SECTOR :])[:size]
    for border in list(borders)[:1]:
        yield bytes(border) + data[border:]


class _Folder:
    """The names in a folder: on the disk, and the changes that have not been synced."""

    def __init__(self, names: dict[str, int]) -> None:
        self.on_disk = dict(names)
        self.pending: list[Callable[[dict[str, int]], None]] = []
        self.now = dict(names)

    def change(self, change: Callable[[dict[str, int]], None]) -> None:
        self.pending.append(change)
        change(self.now)

    def sync(self) -> None:
        self.on_disk, self.pending = dict(self.now), []

    def states(self) -> Iterator[dict[str, int]]:
        sizes = range(len(self.pending) + 1)
        for some in chain.from_iterable(combinations(self.pending, size) for size in sizes):
            names = dict(self.on_disk)
            for change in some:
                change(names)
            yield names


def _rename(names: dict[str, int], old: str, new: str | None, node: int) -> None:
    names.pop(old, None)
    if new is not None:
        names[new] = node


class Disk:
    """The folder *root*, all of it on the disk so far, and what becomes of it."""

    def __init__(self, root: Path) -> None:
        self._root = root.stat().st_ino
        self._nodes: dict[int, _File | _Folder] = {}
        self._add(root)

    def _add(self, path: Path) -> int:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            names = {child.name: self._add(child) for child in path.iterdir()}
            self._nodes[status.st_ino] = _Folder(names)
        else:
            self._nodes[status.st_ino] = _File(path.read_bytes())
        return status.st_ino

    def apply(self, event: Event) -> None:
        kind, args = event
        if kind in ("create", "mkdir", "link", "rename", "unlink"):
            folder, name, *rest = args
            self._change_names(kind, self._folder(folder), name, *rest)
        elif kind == "write":
            self._file(args[0]).write(*args[1:])
        elif kind == "truncate":
            self._file(args[0]).truncate(args[1])
        elif kind == "sync" and args[0] in self._nodes:  # it may be a folder above the root
            self._nodes[args[0]].sync()
        elif kind == "failed sync":
            self._file(args[0]).fail_to_sync()

    def _change_names(self, kind: str, folder: _Folder, name: str, what: Any = None) -> None:
        if kind == "create":
            self._nodes[what] = _File(b"")
        elif kind == "mkdir":
            self._nodes[what] = _Folder({})
        if kind == "unlink":
            folder.change(lambda names: _rename(names, name, None, 0))
        elif kind == "rename":
            node = folder.now[what]
            folder.change(lambda names: _rename(names, what, name, node))
        else:
            folder.change(lambda names: names.update({name: what}))

    def at_risk(self, path: str) -> list[str]:
        """Return what a power cut could take of the file *path*, relative to the root."""
        risks = []
        node = self._root
        for name in Path(path).parts:
            folder = self._folder(node)
            node = folder.now[name]
            if any(names.get(name) != node for names in folder.states()):
                risks.append(f"the name {name!r}")
        if not self._file(node).is_safe:
            risks.append("bytes")
        return risks

    def states(self) -> Iterator[dict[str, bytes]]:
        """Yield what may be there after a power cut: the files by their paths."""
        for tree in self._trees(self._root, ""):
            numbers = sorted(set(tree.values()))
            for contents in product(*(set(self._file(n).states()) for n in numbers)):
                content_of = dict(zip(numbers, contents))
                yield {path: content_of[number] for path, number in tree.items()}

    def _trees(self, folder: int, prefix: str) -> Iterator[dict[str, int]]:
        seen = []
        for names in self._folder(folder).states():
            if names in seen:
                continue
            seen.append(names)
            parts: list[Iterable[dict[str, int]]] = []
            for name, node in names.items():
                if isinstance(self._nodes[node], _Folder):
                    parts.append(list(self._trees(node, f"{prefix}{name}/")))
                else:
                    parts.append([{f"{prefix}{name}": node}])
            for some in product(*parts):
                yield {path: node for part in some for path, node in part.items()}

    def _file(self, number: int) -> _File:
        node = self._nodes[number]
        assert isinstance(node, _File)
        return node

    def _folder(self, number: int) -> _Folder:
        node = self._nodes[number]
        assert isinstance(node, _Folder)
        return node
