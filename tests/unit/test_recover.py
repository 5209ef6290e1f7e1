"""recover="prefix" and "salvage": going on from a damaged log, with nothing thrown away."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_checkpoint import (
    Checkpointer,
    CheckpointError,
    ConflictError,
    CorruptLogError,
    NotALogError,
    RecoveryWarning,
    TornTailWarning,
)
from tests.logs import Log, Seen, body, build, mixed, plain, put, seal, seen, snapshot

STATES = [{"n": n, "text": f"é {n} \u2028" * 9} for n in range(7)]
MODES = ["prefix", "salvage"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def spoil(line: bytes) -> bytes:
    return line.replace(b'"text"', b'"test"')


def spoiled(*numbers: int) -> Callable[[list[bytes]], list[bytes]]:
    """Return what changes the lines *numbers*, counted from 1."""

    def change(lines: list[bytes]) -> list[bytes]:
        return [spoil(line) if n in numbers else line for n, line in enumerate(lines, start=1)]

    return change


@dataclass(frozen=True)
class Damage:
    """A way to hurt a log of seven lines, and the records that each mode keeps of it."""

    hurt: Callable[[list[bytes]], list[bytes]]
    prefix: list[int]
    salvage: list[int]


ALL = [1, 2, 3, 4, 5, 6, 7]
DAMAGES = {
    "the first line": Damage(spoiled(1), [], ALL[1:]),
    "a middle line": Damage(spoiled(4), ALL[:3], [1, 2, 3, 5, 6, 7]),
    "the last line": Damage(spoiled(7), ALL[:6], ALL[:6]),
    "two places": Damage(spoiled(2, 5), [1], [1, 3, 4, 6, 7]),
    "all but one": Damage(spoiled(1, 2, 3, 5, 6, 7), [], [4]),
    "swapped lines": Damage(lambda x: [*x[:2], x[3], x[2], *x[4:]], [1, 2], ALL),
    "a doubled line": Damage(lambda x: [*x[:3], x[2], *x[3:]], [1, 2, 3], ALL),
    "a doubled last line": Damage(lambda x: [*x, x[6]], ALL, ALL),
    "a dropped line": Damage(lambda x: [*x[:3], *x[4:]], [1, 2, 3], [1, 2, 3, 5, 6, 7]),
    "a dropped first line": Damage(lambda x: x[1:], [], ALL[1:]),
    "a foreign line": Damage(lambda x: [*x[:3], b"hello\n", *x[3:]], [1, 2, 3], ALL),
    "a lost newline": Damage(lambda x: [*x[:3], x[3][:-1], *x[4:]], ALL[:4], ALL),
    "a hole": Damage(
        lambda x: [*x[:2], x[2][:50] + bytes(len(x[2]) - 20) + x[3][30:], *x[4:]],
        [1, 2],
        [1, 2, 5, 6, 7],
    ),
    "damage and a torn tail": Damage(
        lambda x: [*x[:2], spoil(x[2]), *x[3:6], x[6][:-9]], [1, 2], [1, 2, 4, 5, 6]
    ),
}

each_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
each_mode = pytest.mark.parametrize("mode", MODES)


def hurt_log(path: Path, damage: Damage, mode: str) -> tuple[bytes, list[Seen]]:
    """Write the hurt log to *path*; return its bytes, and what *mode* keeps."""
    log = build(STATES)
    content = b"".join(damage.hurt(log.lines))
    put(path, content)
    kept = damage.prefix if mode == "prefix" else damage.salvage
    return content, [log.records[number - 1] for number in kept]


@each_damage
@each_mode
def test_reading_gives_what_the_mode_keeps_and_changes_nothing(path, damage, mode):
    content, kept = hurt_log(path, damage, mode)

    ckpt = Checkpointer(path, recover=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = seen(ckpt.records())
        last = ckpt.last_record
        report = ckpt.verify()
        ckpt.close()

    assert records == kept
    assert seen([last] if last else []) == kept[-1:]
    assert all(ckpt.at(seq=seq).data == data for seq, _, data in kept)
    assert report.damage is not None, "verify() tells of the damage in every mode"
    assert snapshot(path.parent) == {"run.jsonl": content}


@each_damage
@each_mode
def test_the_next_save_leaves_a_clean_log_and_the_old_bytes_aside(path, damage, mode):
    content, kept = hurt_log(path, damage, mode)

    with pytest.warns(RecoveryWarning) as caught:
        saved = Checkpointer(path, recover=mode).save("new")

    reader = Checkpointer(path)
    assert seen(reader.records()) == [*kept, (saved.seq, saved.turn, "new")]
    assert reader.verify().ok
    assert reader.verify().records == len(kept) + 1
    assert (saved.seq, saved.turn) == ((kept[-1][0] + 1, kept[-1][1] + 1) if kept else (1, 1))
    files = snapshot(path.parent)
    assert list(files) == ["run.jsonl", "run.jsonl.damaged-1"]
    assert files["run.jsonl.damaged-1"] == content
    assert len(caught) == 1
    words = str(caught[0].message)
    assert repr(str(path)) in words
    assert repr(f"{path}.damaged-1") in words
    assert f"up to record {kept[-1][0] if kept else 0};" in words


@each_damage
@each_mode
def test_after_recovery_the_log_goes_on_as_any_other(path, damage, mode):
    hurt_log(path, damage, mode)
    ckpt = Checkpointer(path, recover=mode)

    with pytest.warns(RecoveryWarning):
        ckpt.save("first")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ckpt.save("second")
        ckpt.close()
        with Checkpointer(path, recover=mode) as again:
            again.save("third")

    states = [record.data for record in Checkpointer(path).records()]
    assert states[-3:] == ["first", "second", "third"]
    assert Checkpointer(path).verify().ok
    assert len(list(path.parent.iterdir())) == 2


@each_mode
def test_the_members_of_kept_records_stay_as_they_were(path, mode):
    log = build(STATES)
    put(path, b"".join(spoiled(6)(log.lines)))
    before = {record.seq: record for record in Checkpointer(path, recover=mode).records()}

    with pytest.warns(RecoveryWarning):
        Checkpointer(path, recover=mode).save("new")

    after = {record.seq: record for record in Checkpointer(path).records()}
    assert {seq: after[seq] for seq in before} == before
    assert path.read_bytes().startswith(b"".join(log.lines[:5]))


@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize("bit", range(8))
@each_mode
def test_a_flipped_bit_in_the_beginning_of_a_sum_does_not_shut_the_log_up(path, mode, bit, place):
    log = build(STATES)
    line = bytearray(log.lines[3])
    line[line.rindex(b'"1:') + place] ^= 1 << bit
    put(path, b"".join([*log.lines[:3], bytes(line), *log.lines[4:]]))

    records = seen(Checkpointer(path, recover=mode).records())

    assert records == log.records[:3] + (log.records[4:] if mode == "salvage" else [])


def test_salvage_chains_what_it_keeps_anew_and_leaves_the_numbers(path):
    log = build(STATES)
    put(path, b"".join(spoiled(1, 4)(log.lines)))

    with pytest.warns(RecoveryWarning):
        Checkpointer(path, recover="salvage").save("new")

    expected, link = b"", b"00000000"
    for seq in (2, 3, 5, 6, 7):
        text = log.lines[seq - 1][: log.lines[seq - 1].rindex(b',"sum"')]
        line, link = seal(text, seq, link)
        expected += line
    assert path.read_bytes().startswith(expected)
    assert [record.seq for record in Checkpointer(path).records()] == [2, 3, 5, 6, 7, 8]


@each_mode
def test_a_second_recovery_sets_aside_under_the_next_number(path, mode):
    contents = []
    for number in (1, 2, 3):
        content, _ = hurt_log(path, DAMAGES["a middle line"], mode)
        path.write_bytes(content + b"garbage %d\n" % number)
        contents.append(path.read_bytes())
        with pytest.warns(RecoveryWarning, match=f"damaged-{number}'"):
            Checkpointer(path, recover=mode).save("new")

    files = snapshot(path.parent)
    aside = [files[f"run.jsonl.damaged-{number}"] for number in (1, 2, 3)]
    assert aside == contents
    assert len(files) == 4


@each_mode
@pytest.mark.parametrize("make", [build, plain, mixed])
def test_a_good_log_is_left_as_it_is(path, mode, make):
    log = make(STATES)
    put(path, log.content)

    with Checkpointer(path, recover=mode) as ckpt, warnings.catch_warnings():
        warnings.simplefilter("error")
        records = seen(ckpt.records())
        ckpt.save("new")

    assert records == log.records
    assert path.read_bytes().startswith(log.content)
    assert list(snapshot(path.parent)) == ["run.jsonl"]


@each_mode
def test_a_torn_log_is_mended_and_nothing_set_aside(path, mode):
    log = build(STATES)
    put(path, log.content[:-9])

    with pytest.warns(TornTailWarning):
        Checkpointer(path, recover=mode).save("new")

    assert seen(Checkpointer(path).records()) == [*log.records[:-1], (7, 7, "new")]
    assert list(snapshot(path.parent)) == ["run.jsonl"]


@each_mode
@pytest.mark.parametrize("content", [None, b""])
def test_an_empty_log_is_an_empty_log(path, mode, content):
    if content is not None:
        put(path, content)

    record = Checkpointer(path, recover=mode).save("first")

    assert (record.seq, Checkpointer(path).verify().ok) == (1, True)
    assert list(snapshot(path.parent)) == ["run.jsonl"]


@pytest.mark.parametrize("damage", [DAMAGES["the last line"], DAMAGES["swapped lines"]])
def test_without_a_mode_nothing_is_recovered(path, damage):
    content = b"".join(damage.hurt(build(STATES).lines[:4]))
    content += b"garbage\n"
    put(path, content)

    with pytest.raises(CorruptLogError) as caught:
        Checkpointer(path).save("new")

    assert "recover='prefix'" in str(caught.value)
    assert "recover='salvage'" in str(caught.value)
    assert snapshot(path.parent) == {"run.jsonl": content}


@each_mode
def test_no_mode_makes_a_log_of_a_file_that_is_none(path, mode):
    put(path, b"Dear diary,\nthis is no log.\n")
    before = snapshot(path.parent)

    with pytest.raises(NotALogError):
        Checkpointer(path, recover=mode).save("new")

    assert snapshot(path.parent) == before


@each_mode
def test_a_refused_value_recovers_nothing(path, mode):
    content, _ = hurt_log(path, DAMAGES["a middle line"], mode)

    with pytest.raises(CheckpointError):
        Checkpointer(path, recover=mode).save({1, 2})
    with pytest.raises(CheckpointError):
        Checkpointer(path, recover=mode, readonly=True).save(1)

    assert snapshot(path.parent) == {"run.jsonl": content}


@each_mode
def test_a_handle_that_has_not_seen_the_end_recovers_nothing(path, mode):
    hurt_log(path, DAMAGES["a middle line"], mode)
    ckpt = Checkpointer(path, recover=mode)
    put(path, b"".join(spoiled(6)(build([*STATES, "more"]).lines)))
    before = snapshot(path.parent)

    with pytest.raises(ConflictError):
        ckpt.save("new")

    assert snapshot(path.parent) == before


@each_mode
def test_a_recovery_is_a_conflict_for_a_handle_that_read_before_it(path, mode):
    hurt_log(path, DAMAGES["a middle line"], mode)
    old = Checkpointer(path, recover=mode)

    with pytest.warns(RecoveryWarning):
        Checkpointer(path, recover=mode).save("new")
    after = snapshot(path.parent)
    with pytest.raises(ConflictError):
        old.save("late")

    assert snapshot(path.parent) == after


@each_mode
def test_what_a_crash_left_of_a_recovery_is_no_hindrance(path, mode):
    _, kept = hurt_log(path, DAMAGES["a middle line"], mode)
    put(path.with_name(".run.jsonl.rewrite"), b"half of a new log")

    with pytest.warns(RecoveryWarning):
        Checkpointer(path, recover=mode).save("new")

    assert seen(Checkpointer(path).records())[:-1] == kept
    assert list(snapshot(path.parent)) == ["run.jsonl", "run.jsonl.damaged-1"]


def test_the_warnings_point_at_the_line_that_saves(path):
    hurt_log(path, DAMAGES["a middle line"], "salvage")

    with pytest.warns(RecoveryWarning) as recovered:
        Checkpointer(path, recover="salvage").save("new")
    put(path, path.read_bytes()[:-9])
    with pytest.warns(TornTailWarning) as mended:
        Checkpointer(path).save("new")

    assert [recovered[0].filename, mended[0].filename] == [__file__, __file__]


# -- lines without a sum ------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, prefix, salvage",
    [(1, [], [1, 2, 3, 4]), (3, [0, 1], [0, 1, 3, 4]), (5, [0, 1, 2, 3], [0, 1, 2, 3])],
)
@each_mode
def test_lines_without_a_sum_are_kept_byte_by_byte(path, mode, number, prefix, salvage):
    log = plain([0, 1, 2, 3, 4])
    lines = [line if n != number else b'{"turn":7}\n' for n, line in enumerate(log.lines, start=1)]
    put(path, b"".join(lines))
    kept = prefix if mode == "prefix" else salvage

    with pytest.warns(RecoveryWarning):
        Checkpointer(path, recover=mode).save("new")

    assert path.read_bytes().startswith(b"".join(log.lines[n] for n in kept))
    assert [record.data for record in Checkpointer(path).records()] == [*kept, "new"]
    assert Checkpointer(path).verify().ok


def doubled(log: Log) -> list[bytes]:
    return [*log.lines[:3], log.lines[0], plain(["by hand"]).lines[0]]


def swapped(log: Log) -> list[bytes]:
    return [log.lines[0], log.lines[2], log.lines[1], plain(["by hand"]).lines[0]]


@pytest.mark.parametrize("hurt", [doubled, swapped])
def test_salvage_keeps_a_line_without_a_sum_behind_displaced_lines(path, hurt):
    put(path, b"".join(hurt(build([1, 2, 3]))))

    records = [record.data for record in Checkpointer(path, recover="salvage").records()]

    assert records == [1, 2, 3, "by hand"]


def test_salvage_takes_no_record_from_the_inside_of_another(path):
    foreign = build(range(9)).lines[8][:-1]
    log = build([1, 2])
    text = body(3, 1.5, ["HERE"]).replace(b'"HERE"', foreign)
    put(path, log.content + seal(text, 3, b"00000000")[0].replace(b"[" + foreign, b"Z" + foreign))

    records = seen(Checkpointer(path, recover="salvage").records())

    assert records == log.records


# -- warnings as errors -------------------------------------------------------------------


def save_with_warnings_as_errors(ckpt: Checkpointer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ckpt.save("raised")


@each_mode
def test_where_warnings_are_errors_the_next_save_goes_on(path, mode):
    _, kept = hurt_log(path, DAMAGES["two places"], mode)
    ckpt = Checkpointer(path, recover=mode)

    with pytest.raises(RecoveryWarning):
        save_with_warnings_as_errors(ckpt)
    ckpt.save("saved")

    assert [record.data for record in Checkpointer(path).records()] == [
        *(data for _, _, data in kept),
        "saved",
    ]


@each_mode
def test_where_warnings_are_errors_close_unlocks_the_log(path, mode):
    fcntl = pytest.importorskip("fcntl")
    hurt_log(path, DAMAGES["two places"], mode)
    ckpt = Checkpointer(path, recover=mode)

    with pytest.raises(RecoveryWarning):
        save_with_warnings_as_errors(ckpt)
    ckpt.close()

    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_where_warnings_are_errors_a_torn_log_is_mended_and_the_next_save_goes_on(path):
    log = build(STATES)
    put(path, log.content[:-9])
    ckpt = Checkpointer(path)

    with pytest.raises(TornTailWarning):
        save_with_warnings_as_errors(ckpt)
    ckpt.save("saved")

    assert seen(Checkpointer(path).records()) == [*log.records[:-1], (7, 7, "saved")]


@pytest.mark.parametrize("shorter", [2, 5])
def test_salvage_keeps_both_of_two_logs_that_were_joined(path, shorter):
    first = build([f"a{n}" for n in range(4)])
    second = build([f"b{n}" for n in range(shorter)])
    put(path, first.content + second.content)

    with pytest.warns(RecoveryWarning), Checkpointer(path, recover="salvage") as ckpt:
        ckpt.save("new")

    records = list(ckpt.records())
    states = [record.data for record in records]
    assert sorted(states) == sorted([r[2] for r in first.records + second.records] + ["new"])
    assert states[:4] == ["a0", "a1", "a2", "a3"]
    assert states[-1] == "new"
    assert [record.seq for record in records] == list(range(1, 4 + shorter + 2))


def test_salvage_takes_a_line_that_stands_twice_once(path):
    log = build(STATES)
    put(path, b"".join([*log.lines[:3], *log.lines[1:]]))

    assert seen(Checkpointer(path, recover="salvage").records()) == log.records


@pytest.mark.parametrize("make", [build, plain, mixed])
@pytest.mark.parametrize("index", range(6))
def test_a_plain_line_that_stands_twice_moves_no_record(path, make, index):
    log = make(["one", "two", "three", "four", "five", "six"])
    put(path, b"".join([*log.lines, log.lines[index], b"garbage\n"]))

    records = seen(Checkpointer(path, recover="salvage").records())

    assert records[:6] == log.records
    assert records[6:] in ([], [(7, *log.records[index][1:])])


@pytest.mark.parametrize("make", [build, plain, mixed])
@pytest.mark.parametrize("index", range(5))
def test_what_salvage_shows_is_what_it_writes(path, make, index):
    log = make(["one", "two", "three", "four", "five", "six"])
    put(path, b"".join([*log.lines[:index], b"garbage\n", *log.lines[index + 1 :]]))
    ckpt = Checkpointer(path, recover="salvage")

    shown = seen(ckpt.records())
    with pytest.warns(RecoveryWarning):
        ckpt.save("new")

    assert seen(Checkpointer(path).records())[:-1] == shown
    assert [record[2] for record in shown] == [
        state for n, (_, _, state) in enumerate(log.records) if n != index
    ]


def test_a_line_of_a_stranger_takes_no_number_that_a_record_has(path):
    log = mixed(["one", "two", "three", "four", "five", "six"])
    put(path, b"".join([log.lines[0], b"garbage\n", *log.lines[1:]]))

    records = seen(Checkpointer(path, recover="salvage").records())

    assert [(seq, data) for seq, _, data in records] == [
        (1, "one"), (2, "two"), (3, "three"), (4, "four"), (5, "five"), (6, "six"),
    ]  # fmt: skip


@each_mode
def test_a_log_with_nothing_but_one_damaged_record_goes_on_from_none(path, mode):
    log = build([{"text": "only"}])
    put(path, log.content.replace(b"only", b"onlx"))

    with Checkpointer(path, recover=mode) as ckpt:
        before = ckpt.last_record
        with pytest.warns(RecoveryWarning):
            record = ckpt.save("new")

    assert before is None
    assert (record.seq, record.turn) == (1, 1)
    assert [record.data for record in ckpt.records()] == ["new"]


@each_mode
def test_damage_that_a_writer_of_this_process_passes_by_is_recovered(path, mode):
    writer = Checkpointer(path)
    for state in STATES:
        writer.save(state)
    damaged = b"".join(spoiled(4)(path.read_bytes().splitlines(keepends=True)))
    put(path, damaged)

    with pytest.warns(RecoveryWarning):
        Checkpointer(path, recover=mode).save("new")

    kept = [1, 2, 3] if mode == "prefix" else [1, 2, 3, 5, 6, 7]
    seqs = [record.seq for record in Checkpointer(path).records()]
    assert seqs == [*kept, kept[-1] + 1]
    assert (path.parent / "run.jsonl.damaged-1").read_bytes() == damaged


@each_mode
def test_a_second_name_that_a_crash_left_to_the_damaged_log_is_used(path, mode):
    content, _ = hurt_log(path, DAMAGES["a middle line"], mode)
    os.link(path, path.parent / "run.jsonl.damaged-1")

    with pytest.warns(RecoveryWarning):
        Checkpointer(path, recover=mode).save("new")

    assert sorted(snapshot(path.parent)) == ["run.jsonl", "run.jsonl.damaged-1"]
    assert (path.parent / "run.jsonl.damaged-1").read_bytes() == content
