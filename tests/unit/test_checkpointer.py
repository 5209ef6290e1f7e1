"""One handle on one log: numbers, tags, reading, closing."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import stat
import tracemalloc
import warnings
from pathlib import Path

import pytest

from agent_checkpoint import (
    ArgumentError,
    Checkpointer,
    ClosedError,
    CorruptLogError,
    ReadOnlyError,
    Record,
    RecordNotFoundError,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# -- numbers ------------------------------------------------------------------------------


def test_turns_and_seqs_count_from_one(path):
    ckpt = Checkpointer(path)

    saved = [ckpt.save({"x": x}) for x in range(3)]

    assert [(record.turn, record.seq) for record in saved] == [(1, 1), (2, 2), (3, 3)]


def test_a_turn_goes_on_from_the_newest_record_whatever_its_turn(path):
    ckpt = Checkpointer(path)
    for turn in (5, 9, 2):
        ckpt.save({}, turn=turn)

    record = ckpt.save({})

    assert (record.turn, record.seq) == (3, 4)


def test_numbering_goes_on_in_the_next_handle(path):
    with Checkpointer(path) as ckpt:
        ckpt.save({}, turn=41)

    with Checkpointer(path) as ckpt:
        record = ckpt.save({})

    assert (record.turn, record.seq) == (42, 2)


def test_the_last_line_of_a_redone_turn_wins(path):
    ckpt = Checkpointer(path)
    for x in ("first", "second"):
        ckpt.save({"x": x}, turn=1)
        ckpt.save({"x": 2})

    assert ckpt.at(1).data == {"x": "second"}
    assert ckpt.at(turn=1).seq == 3
    assert ckpt.at(seq=1).data == {"x": "first"}


def test_turn_zero_is_a_turn(path):
    ckpt = Checkpointer(path)

    ckpt.save({}, turn=0)

    assert ckpt.last_record.turn == 0
    assert ckpt.save({}).turn == 1


def test_after_the_largest_turn_there_is_no_next_one(path):
    ckpt = Checkpointer(path)
    ckpt.save({}, turn=2**53 - 1)
    before = path.read_bytes()

    with pytest.raises(ArgumentError, match="turn is 9007199254740992"):
        ckpt.save({})

    assert path.read_bytes() == before
    assert ckpt.save({}, turn=1).seq == 2


@pytest.mark.parametrize("wanted", [{"turn": 2}, {"seq": 2}])
def test_a_record_that_is_not_there_is_named(path, wanted):
    ckpt = Checkpointer(path)
    ckpt.save({})

    with pytest.raises(RecordNotFoundError, match=f"no record of {next(iter(wanted))} 2"):
        ckpt.at(**wanted)


@pytest.mark.parametrize("wanted", [{}, {"turn": 1, "seq": 1}])
def test_at_takes_one_of_turn_and_seq(path, wanted):
    with pytest.raises(ArgumentError, match="turn or seq"):
        Checkpointer(path).at(**wanted)


# -- tags ---------------------------------------------------------------------------------


def test_meta_is_always_there(path):
    record = Checkpointer(path).save({})

    assert record.meta == {}
    assert lines_of(path)[0]["meta"] == {}


def test_meta_adds_to_the_tags(path):
    ckpt = Checkpointer(path, label="a", run_id="b")

    record = ckpt.save({}, meta={"cost": 0.5})

    assert record.meta == {"label": "a", "run_id": "b", "cost": 0.5}
    assert ckpt.save({}).meta == {"label": "a", "run_id": "b"}


@pytest.mark.parametrize("name", ["label", "run_id", "rollback", "fork", "tag"])
def test_meta_may_not_redefine_reserved_names(path, name):
    ckpt = Checkpointer(path)

    with pytest.raises(ArgumentError, match=f"{name!r}.*Nothing was written"):
        ckpt.save({}, meta={name: "x"})

    assert not path.exists()


def test_another_run_id_is_allowed_on_resume(path):
    with Checkpointer(path, run_id="one") as ckpt:
        ckpt.save({})

    with Checkpointer(path, run_id="two") as ckpt:
        ckpt.save({})

    assert [line["meta"]["run_id"] for line in lines_of(path)] == ["one", "two"]


# -- records ------------------------------------------------------------------------------


def test_a_record_is_what_was_saved_and_not_what_became_of_it(path):
    ckpt = Checkpointer(path)
    state, tags = {"messages": ["a"]}, {"tags": ["x"]}

    record = ckpt.save(state, meta=tags)
    state["messages"].append("b")
    tags["tags"].append("y")

    assert record.data == {"messages": ["a"]}
    assert record.meta == {"tags": ["x"]}
    assert ckpt.last_record == record


def test_what_is_done_to_a_record_stays_in_it(path):
    ckpt = Checkpointer(path, label="a")
    saved = ckpt.save({"messages": []})

    for record in (saved, ckpt.last_record, ckpt.at(1), next(ckpt.records())):
        record.data["messages"].append("mine")
        record.meta["label"] = "mine"

    assert ckpt.last_record.data == {"messages": []}
    assert ckpt.save({}).meta == {"label": "a"}


def test_a_record_is_read_only(path):
    record = Checkpointer(path).save({})

    with pytest.raises(AttributeError, match="read-only"):
        setattr(record, "turn", 5)  # noqa: B010
    with pytest.raises(AttributeError, match="read-only"):
        setattr(record, "data", {})  # noqa: B010
    with pytest.raises(AttributeError, match="read-only"):
        del record.turn


def test_a_record_can_be_copied_pickled_and_shown(path):
    record = Checkpointer(path, label="a").save({"x": [1]})

    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.deepcopy(record) == record
    assert repr(record).startswith("Record(seq=1, turn=1, ts=")
    assert record != Record(1, record.ts, {"x": [2]}, {"label": "a"}, 1)
    assert record != "a record"


def test_records_are_read_one_at_a_time(path):
    with Checkpointer(path, durability="flush") as ckpt:
        for _ in range(64):
            ckpt.save({"text": "x" * 250_000})

    tracemalloc.start()
    turns = [record.turn for record in ckpt.records()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert turns == list(range(1, 65))
    assert peak < 6_000_000  # of 16,000,000


def test_last_record_reads_the_end_only(path):
    with Checkpointer(path, durability="flush") as ckpt:
        for _ in range(64):
            ckpt.save({"text": "x" * 250_000})
    with path.open("r+b") as log:
        log.write(b"damage" * 1000)

    assert Checkpointer(path).last_record.turn == 64
    with pytest.raises(CorruptLogError):
        list(Checkpointer(path).records())


def test_verify_counts_what_is_there(path):
    ckpt = Checkpointer(path)
    ckpt.save({})
    ckpt.save({})
    with path.open("ab") as log:
        log.write(b'{"turn":3,"ts')

    report = ckpt.verify()

    assert (report.records, report.bytes) == (2, path.stat().st_size)
    assert (report.torn.length, report.torn.beginning) == (13, b'{"turn":3,"ts')
    assert report.damage is None
    assert not report.ok


def test_an_absent_log_is_empty(path):
    ckpt = Checkpointer(path)

    assert ckpt.last_record is None
    assert list(ckpt.records()) == []
    assert ckpt.verify() == (0, 0, None, None)
    assert ckpt.verify().ok
    assert not path.exists()


# -- files and folders --------------------------------------------------------------------


def test_parent_folders_are_made_by_the_first_save_and_not_before(tmp_path):
    ckpt = Checkpointer(tmp_path / "a/b/c/run.jsonl")
    assert list(tmp_path.iterdir()) == []

    ckpt.save({})

    assert [p.name for p in (tmp_path / "a/b/c").iterdir()] == ["run.jsonl"]


def test_a_log_is_for_its_owner_alone(tmp_path):
    Checkpointer(tmp_path / "a/run.jsonl").save({})

    assert stat.S_IMODE((tmp_path / "a/run.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_the_path_stays_the_same_when_the_program_changes_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ckpt = Checkpointer("run.jsonl")
    monkeypatch.chdir("/")

    ckpt.save({})

    assert ckpt.path == os.path.join(tmp_path, "run.jsonl")
    assert (tmp_path / "run.jsonl").exists()


def test_reading_changes_neither_the_file_nor_the_folder(path):
    with Checkpointer(path) as ckpt:
        ckpt.save({})
    with path.open("ab") as log:
        log.write(b'{"turn":2')
    before = path.stat(), path.read_bytes(), os.listdir(path.parent)

    for readonly in (False, True):
        with_reads = Checkpointer(path, readonly=readonly)
        list(with_reads.records())
        with_reads.at(1)
        with_reads.verify()
        assert with_reads.last_record.turn == 1
        with_reads.close()

    after = path.stat(), path.read_bytes(), os.listdir(path.parent)
    assert (before[0].st_mtime_ns, before[0].st_ino) == (after[0].st_mtime_ns, after[0].st_ino)
    assert before[1:] == after[1:]


# -- the end of a handle ------------------------------------------------------------------


def test_a_closed_handle_reads_and_does_not_write(path):
    with Checkpointer(path) as ckpt:
        ckpt.save({"x": 1})

    assert ckpt.last_record.data == {"x": 1}
    with pytest.raises(ClosedError, match=r"closed\. Nothing was written"):
        ckpt.save({"x": 2})
    with pytest.raises(ClosedError):
        ckpt.__enter__()
    ckpt.close()
    assert len(lines_of(path)) == 1


def test_a_readonly_handle_does_not_write(path):
    Checkpointer(path).save({"x": 1})

    with Checkpointer(path, readonly=True) as ckpt:
        with pytest.raises(ReadOnlyError, match=r"readonly=True\. Nothing was written"):
            ckpt.save({"x": 2})

        assert ckpt.last_record.data == {"x": 1}


def test_with_and_readonly_make_no_file(path):
    with Checkpointer(path, readonly=True) as ckpt:
        assert ckpt.last_record is None

    assert not path.exists()


def test_an_exception_in_the_block_is_not_hidden(path):
    ckpt = Checkpointer(path)

    with pytest.raises(ZeroDivisionError), ckpt:
        raise ZeroDivisionError(ckpt.save({}))

    assert len(lines_of(path)) == 1


def test_a_forgotten_handle_leaks_nothing(path):
    for _ in range(3):
        Checkpointer(path).save({})
    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            Checkpointer(path).save({})
        gc.collect()

    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before
    assert len(lines_of(path)) == 23


@pytest.mark.parametrize(
    "wrong",
    [
        {"durability": "fsync"},
        {"durability": None},
        {"recover": "all"},
        {"label": 5},
        {"run_id": b"x"},
        {"label": "\ud800"},
    ],
)
def test_an_argument_that_cannot_be_meant_is_named(path, wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        Checkpointer(path, **wrong)


@pytest.mark.parametrize("wrong", ["", "a\0b", b"run.jsonl", "runs/"])
def test_a_path_that_cannot_be_meant_is_named(wrong):
    with pytest.raises(ArgumentError, match="path"):
        Checkpointer(wrong)
