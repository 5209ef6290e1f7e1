"""Logs that an editor, another system or another program has touched, and harmlessly."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_checkpoint import (
    ArgumentError,
    Checkpointer,
    CorruptLogError,
    ReaderLimitError,
    TornTailWarning,
)
from tests.logs import build, mixed, plain, put, seal, seen

STATES = ["one", {"two": 2}, "three"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.mark.parametrize("states", [STATES[:1], STATES, ["x" * 70_000, "y"]])
@pytest.mark.parametrize(
    "end", [b" ", b"\r", b" \t\r", b"\r\n", b"  \n", b"\r\n\r\n", b"\n \n", b"\n "]
)
@pytest.mark.parametrize("make", [build, plain, mixed])
def test_blanks_behind_the_last_line_are_nothing(path, make, end, states):
    log = make(states)
    put(path, log.content[:-1] + end)

    ckpt = Checkpointer(path)
    assert seen([ckpt.last_record]) == log.records[-1:]
    assert seen(ckpt.records()) == log.records
    assert ckpt.verify().ok
    ckpt.save("new")
    ckpt.close()

    number = len(states) + 1
    assert path.read_bytes().startswith(log.content[:-1] + end)
    assert Checkpointer(path).verify().ok
    assert seen(Checkpointer(path).records()) == [*log.records, (number, number, "new")]


@pytest.mark.parametrize("states", [STATES, ["x" * 70_000, "y", "z" * 70_000]])
@pytest.mark.parametrize("make", [build, plain])
def test_a_log_whose_lines_were_made_to_end_in_cr_lf_goes_on(path, make, states):
    log = make(states)
    put(path, log.content.replace(b"\n", b"\r\n"))

    with Checkpointer(path) as ckpt:
        assert seen([ckpt.last_record]) == log.records[-1:]
        ckpt.save("new")

    assert seen(Checkpointer(path).records()) == [*log.records, (4, 4, "new")]
    assert Checkpointer(path).verify().ok


@pytest.mark.parametrize("make", [build, plain])
@pytest.mark.parametrize(
    "data", [b'{"sum":"12.50"}', b'{"n":[{"sum":"1:2:3:4:5"}]}', b'{"sum":""}']
)
def test_a_last_line_without_newline_whose_state_ends_in_a_sum_is_a_record(path, make, data):
    line = b'{"turn":9,"ts":0,"data":%s}' % data
    log = make(STATES)
    put(path, log.content + line)

    with Checkpointer(path) as ckpt:
        assert ckpt.last_record.turn == 9
        ckpt.save("new")

    assert [record.turn for record in Checkpointer(path).records()] == [1, 2, 3, 9, 10]


def test_a_line_that_lost_its_middle_is_no_line_of_a_stranger(path):
    log = build(["one", "the true state"])
    line = log.lines[1]
    cut = line.replace(b'true state","meta":{},"sum":"', b"")
    assert cut != line
    put(path, log.lines[0] + cut)

    with pytest.raises(CorruptLogError, match="ends like a sum"):
        list(Checkpointer(path).records())


def test_a_path_goes_through_links_as_it_does_for_everybody_else(tmp_path, monkeypatch):
    real = tmp_path / "real" / "sub"
    real.mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(tmp_path)

    with Checkpointer("link/../run.jsonl") as ckpt:
        ckpt.save(1)

    assert (tmp_path / "real" / "run.jsonl").exists()
    assert not (tmp_path / "run.jsonl").exists()
    assert Path(ckpt.path).is_absolute()


def test_a_log_whose_numbers_are_used_up_takes_no_record_that_could_not_be_read(path):
    text = b'{"turn":1,"ts":1.5,"data":1,"meta":{}'
    put(path, seal(text, 10**18 - 1, b"00000000")[0])
    before = path.read_bytes()

    with Checkpointer(path) as ckpt, pytest.raises(ArgumentError, match="seq"):
        ckpt.save("one too many")

    assert path.read_bytes() == before


def test_the_state_of_a_record_just_saved_is_beyond_a_limit_in_our_words(path, digit_limit):
    record = Checkpointer(path).save(10**1000)
    digit_limit(700)

    with pytest.raises(ReaderLimitError):
        _ = record.data


@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b" \r\n\t\n"])
def test_a_blank_line_does_not_change_what_the_end_of_a_log_tells(path, blank):
    damaged = build([1, 2, 3]).content.replace(b'"data":1', b'"data":7')
    put(path, damaged + blank)

    ckpt = Checkpointer(path)
    before = ckpt.last_record
    ckpt.save(4)

    assert before.seq == 3
    assert Checkpointer(path).last_record.seq == 4
    with pytest.raises(CorruptLogError):
        list(Checkpointer(path).records())


RECORD = plain([1]).lines[0][:-1]


@pytest.mark.parametrize(
    "content",
    [
        RECORD + b"\r" + RECORD + b"\r",
        RECORD + RECORD,
        RECORD + b",",
        RECORD + b" // mine",
        b'{"turn":1,"ts":1.5,"data":"\xff\xfe","meta":{}}',
        b'  {"turn":1,"ts":1.5,"data":"\xff\xfe","meta":{}} ',
    ],
)
@pytest.mark.parametrize("before", [b"", plain([1]).content, build([1, 2]).content])
def test_a_whole_object_that_is_no_record_is_not_dropped_for_want_of_a_newline(
    path, content, before
):
    put(path, before + content)

    for call in (lambda ckpt: ckpt.save("new"), lambda ckpt: list(ckpt.records())):
        with pytest.raises(CorruptLogError) as caught:
            call(Checkpointer(path))
        assert caught.value.offset == len(before)

    assert path.read_bytes() == before + content


def test_a_whole_object_with_nuls_behind_it_is_torn(path):
    put(path, plain([1]).content + RECORD + bytes(100))

    with pytest.warns(TornTailWarning):
        Checkpointer(path).save("new")

    assert [record.data for record in Checkpointer(path).records()] == [1, "new"]
