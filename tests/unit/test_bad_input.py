"""Paths and arguments that cannot be meant, and files that may not be touched: errors that help."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from agent_checkpoint import (
    ArgumentError,
    Checkpointer,
    CheckpointError,
    PathError,
    StorageError,
    UnstorableError,
)
from tests.logs import build, plain, put, seen, snapshot
from tests.refusals import (
    READS,
    WRITES,
    check_words,
    enter,
    posix_only,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# -- paths that are no file ------------------------------------------------------------------


@posix_only
@pytest.mark.parametrize(
    "kind, words, advice",
    [
        ("folder", "is a folder; a log is a regular file", "Name a file in it"),
        ("link", "is a symbolic link; a log is a regular file", "Name the log file itself"),
        ("dangling link", "is a symbolic link; a log is a regular file", "Name the log file"),
        ("link to a folder", "is a symbolic link", "Name the log file itself"),
        ("loop", "is a symbolic link", "Name the log file itself"),
        ("fifo", "is a FIFO; a log is a regular file", "Name the log file itself"),
        ("socket", "is a socket; a log is a regular file", "Name the log file itself"),
    ],
)
def test_a_path_that_is_no_regular_file_is_refused_at_once(tmp_path, path, kind, words, advice):
    target = tmp_path / "target"
    target.write_bytes(plain([1]).content)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)  # to open it would wait for a reader for ever
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        to = {"link": target, "loop": path, "link to a folder": tmp_path}
        path.symlink_to(to.get(kind, tmp_path / "nothing"))
    before = snapshot(tmp_path)

    with pytest.raises(PathError) as caught:
        Checkpointer(path)

    check_words(caught.value, str(path), words, advice=advice)
    assert snapshot(tmp_path) == before


@posix_only
@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"])
def test_a_device_is_refused_at_once(device):
    with pytest.raises(PathError) as caught:
        Checkpointer(device)

    check_words(caught.value, device, "is a device", advice="Name the log file itself")


@posix_only
@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
@pytest.mark.parametrize("calls", [READS, WRITES, {"with": enter}])
def test_what_takes_the_place_of_the_log_later_is_refused_too(tmp_path, path, kind, calls):
    for name, call in calls.items():
        place = path.with_name(name)
        ckpt = Checkpointer(place)
        if kind == "folder":
            place.mkdir()
        elif kind == "fifo":
            os.mkfifo(place)
        else:
            place.symlink_to(tmp_path / "elsewhere")
        before = snapshot(tmp_path)

        with pytest.raises(PathError):
            call(ckpt)

        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["", "runs/", "run.jsonl/", "a\0b", b"run.jsonl", "/", "x//"])
def test_a_path_that_names_no_file_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ArgumentError) as caught:
        Checkpointer(name)

    check_words(caught.value, "path", advice="the name of a file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [".", "..", "sub", "sub/.."])
def test_a_name_of_a_folder_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()

    with pytest.raises(PathError):
        Checkpointer(name)

    assert list(snapshot(tmp_path)) == ["sub"]


@pytest.mark.parametrize("name", [None, 7, 1.5, ["run.jsonl"]])
def test_a_path_of_another_type_is_refused(name):
    with pytest.raises(ArgumentError) as caught:
        Checkpointer(name)

    check_words(caught.value, "path", repr(name), advice="the name of a file")


def test_a_path_below_a_file_is_refused_when_saving(tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    path = tmp_path / "file" / "run.jsonl"
    before = snapshot(tmp_path)

    ckpt = Checkpointer(path)
    with pytest.raises(StorageError) as caught:
        ckpt.save(1)

    check_words(caught.value, str(path), "could not open", advice="save again")
    assert ckpt.last_record is None
    assert snapshot(tmp_path) == before


@posix_only
@pytest.mark.parametrize("call", [*READS.values(), *WRITES.values(), enter])
def test_a_name_too_long_for_the_system_is_refused(tmp_path, call):
    with pytest.raises(StorageError) as caught:
        call(Checkpointer(tmp_path / ("x" * 300)))

    check_words(caught.value, "could not open", "too long", advice="Mend the cause")
    assert list(tmp_path.iterdir()) == []


def test_a_log_may_have_the_longest_name_that_the_system_allows(tmp_path):
    path = tmp_path / ("x" * 255)

    Checkpointer(path).save(1)

    assert seen(Checkpointer(path).records()) == [(1, 1, 1)]


@posix_only
def test_a_path_that_cannot_be_a_name_is_refused():
    with pytest.raises(CheckpointError):
        Checkpointer("\ud800.jsonl")


@posix_only
def test_a_name_that_is_no_unicode_is_a_name(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.jsonl"

    with Checkpointer(os.fsdecode(path)) as ckpt:
        ckpt.save(1)

    assert os.path.getsize(path) > 0


# -- permissions -----------------------------------------------------------------------------


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are the user's."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run a block without root's powers, which no permission stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def make_log(path: Path, mode: int = 0o644) -> None:
    path.write_bytes(build([1, 2]).content)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    path.chmod(mode)


@posix_only
def test_a_read_only_file_is_read_and_refused_for_writing(open_to_all):
    path = open_to_all / "run.jsonl"
    make_log(path, 0o444)
    before = snapshot(open_to_all)

    with as_nobody():
        records = seen(Checkpointer(path).records())
        for call in (lambda ckpt: ckpt.save(1), enter):
            with pytest.raises(StorageError) as caught:
                call(Checkpointer(path))
            check_words(caught.value, str(path), "Permission denied", advice="save again")

    assert records == [(1, 1, 1), (2, 2, 2)]
    assert snapshot(open_to_all) == before


@posix_only
def test_a_file_that_may_not_be_read_is_refused(open_to_all):
    path = open_to_all / "run.jsonl"
    make_log(path, 0o200)
    before = snapshot(open_to_all)

    for call in [*READS.values(), *WRITES.values(), Checkpointer.verify, enter]:
        with as_nobody(), pytest.raises(StorageError) as caught:
            call(Checkpointer(path))
        check_words(caught.value, str(path), "could not open", advice="save again")

    assert snapshot(open_to_all) == before


@posix_only
@pytest.mark.parametrize("name", ["run.jsonl", "new/run.jsonl"])
def test_a_folder_that_may_not_be_written_to_is_refused(open_to_all, name):
    open_to_all.chmod(0o555)

    with as_nobody(), pytest.raises(StorageError) as caught:
        Checkpointer(open_to_all / name).save(1)

    check_words(caught.value, name, "could not open", "Permission denied", advice="save again")
    assert snapshot(open_to_all) == {}


@posix_only
def test_a_log_in_a_folder_that_may_not_be_written_to_is_written_all_the_same(open_to_all):
    path = open_to_all / "run.jsonl"
    make_log(path)
    open_to_all.chmod(0o555)

    with as_nobody():
        record = Checkpointer(path).save(3)

    assert record.seq == 3
    assert list(snapshot(open_to_all)) == ["run.jsonl"]


@posix_only
def test_a_folder_that_may_not_be_entered_is_refused_at_once(open_to_all):
    closed = open_to_all / "closed"
    closed.mkdir(mode=0o700)
    (closed / "run.jsonl").write_bytes(build([1]).content)
    closed.chmod(0o600 if os.geteuid() else 0o700)

    with as_nobody(), pytest.raises(StorageError) as caught:
        Checkpointer(closed / "run.jsonl")

    closed.chmod(0o700)
    check_words(caught.value, "Permission denied", advice="save again")
    assert snapshot(closed) == {"run.jsonl": build([1]).content}


# -- arguments -------------------------------------------------------------------------------


class Turn(IntEnum):
    FIRST = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "turn", [-1, -(10**30), True, False, 1.0, 1.5, "1", b"1", [1], Turn.FIRST, 2**53, 10**400]
)
def test_a_turn_that_is_no_whole_number_is_refused(path, turn):
    put(path, build([1]).content)
    before = snapshot(path.parent)

    with pytest.raises(ArgumentError) as caught:
        Checkpointer(path).save({}, turn=turn)

    assert isinstance(caught.value, ValueError)
    check_words(caught.value, "turn is", advice="a whole number from 0 to 9007199254740991")
    assert snapshot(path.parent) == before


@pytest.mark.parametrize("turn", [0, 1, 2**53 - 1])
def test_a_turn_may_be_any_whole_number_that_every_reader_can_hold(path, turn):
    Checkpointer(path).save({}, turn=turn)

    assert [record.turn for record in Checkpointer(path).records()] == [turn]
    assert Checkpointer(path).verify().ok


def test_the_turn_after_the_largest_is_refused(path):
    Checkpointer(path).save(1, turn=2**53 - 1)
    before = snapshot(path.parent)

    with pytest.raises(ArgumentError) as caught:
        Checkpointer(path).save(2)
    unchanged = snapshot(path.parent)
    record = Checkpointer(path).save(3, turn=1)

    check_words(caught.value, "turn", advice="at most 9007199254740991")
    assert unchanged == before
    assert (record.seq, record.turn) == (2, 1)


@pytest.mark.parametrize(
    "name, value",
    [
        ("label", 7),
        ("label", b"x"),
        ("label", ["x"]),
        ("label", True),
        ("run_id", 7),
        ("run_id", 1.5),
        ("run_id", {"a": 1}),
        ("durability", "fsync"),
        ("durability", ""),
        ("durability", None),
        ("durability", True),
        ("durability", ["sync"]),
        ("recover", "always"),
        ("recover", None),
        ("recover", "TAIL"),
        ("recover", {}),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused_at_once(path, name, value):
    with pytest.raises(ArgumentError) as caught:
        Checkpointer(path, **{name: value})

    assert caught.value.name == name
    check_words(caught.value, f"{name} is {value!r}", advice="it has to be")
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["label", "run_id"])
@pytest.mark.parametrize("value", ["\ud800", Text("x")])
def test_a_tag_that_no_line_can_hold_is_refused_at_once(path, name, value):
    with pytest.raises(UnstorableError) as caught:
        Checkpointer(path, **{name: value})

    assert caught.value.path == f"meta[{name!r}]"


@pytest.mark.parametrize("meta", [[], "x", 7, True, [("a", 1)], {"a"}, (("a", 1),)])
def test_meta_that_is_no_dict_is_refused(path, meta):
    put(path, build([1]).content)
    before = snapshot(path.parent)

    with pytest.raises(ArgumentError) as caught:
        Checkpointer(path).save({}, meta=meta)

    check_words(caught.value, f"meta is a {type(meta).__name__}", advice="a dict or None")
    assert snapshot(path.parent) == before


@pytest.mark.parametrize("name", ["label", "run_id", "rollback", "undo", "fork", "tag", "object"])
def test_meta_may_not_take_a_name_of_the_package(path, name):
    put(path, build([1]).content)
    before = snapshot(path.parent)

    with pytest.raises(ArgumentError) as caught:
        Checkpointer(path, label="l", run_id="r").save({}, meta={"mine": 1, name: "x"})

    check_words(caught.value, f"meta is a dict with the name {name!r}", advice="without the names")
    assert snapshot(path.parent) == before


@pytest.mark.parametrize(
    "meta, place",
    [
        ({"a": (1,)}, "meta['a']"),
        ({1: 2}, "meta"),
        ({None: 2, "x": 1}, "meta"),
        ({"a": {"b": [float("nan")]}}, "meta['a']['b'][0]"),
        ({"\ud800": 1}, "meta"),
    ],
)
def test_meta_is_held_to_the_same_values_as_the_state(path, meta, place):
    with pytest.raises(UnstorableError) as caught:
        Checkpointer(path, label="l").save({}, meta=meta)

    assert caught.value.path == place
    assert not path.exists()


@pytest.mark.parametrize("arguments", [{}, {"turn": 1, "seq": 1}])
def test_at_wants_a_turn_or_a_seq(path, arguments):
    put(path, build([1]).content)

    with pytest.raises(ArgumentError) as caught:
        Checkpointer(path).at(**arguments)

    check_words(caught.value, "turn", "seq", advice="one of the two")


@pytest.mark.parametrize("name", ["turn", "seq"])
@pytest.mark.parametrize("value", [True, 1.0, "1", [1]])
def test_at_wants_a_whole_number(path, name, value):
    put(path, build([1]).content)

    with pytest.raises(ArgumentError) as caught:
        Checkpointer(path).at(**{name: value})

    check_words(caught.value, f"{name} is {value!r}", advice="a whole number")


@pytest.mark.parametrize("name", ["turn", "label", "run_id", "durability", "recover"])
def test_an_integer_that_python_does_not_print_is_refused_with_an_error_of_ours(path, name):
    options: dict[str, Any] = {} if name == "turn" else {name: 10**5000}

    with pytest.raises(CheckpointError):
        Checkpointer(path, **options).save({}, turn=10**5000)
