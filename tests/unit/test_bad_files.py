"""Files that are no log, and lines that are no record: an error that helps, and nothing changed."""

from __future__ import annotations

import json
import random
import tracemalloc
import warnings
from pathlib import Path

import pytest

from agent_checkpoint import (
    Checkpointer,
    CorruptLogError,
    NewerFormatError,
    NotALogError,
    ReaderLimitError,
    RecordTooLargeError,
    StorageError,
    TornTailWarning,
)
from tests.logs import Log, body, build, mixed, plain, put, seal, seen, snapshot
from tests.refusals import (
    READS,
    RECOVERIES,
    WRITES,
    check_words,
    read_all,
    refusals,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# -- files that are no log -------------------------------------------------------------------


def random_bytes(number: int) -> bytes:
    return bytes(random.Random(number).randrange(256) for _ in range(number))


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0\x08\6\0\0\0"
SQLITE = b"SQLite format 3\0\x10\0\1\1\0\x40\x20\x20\0\0\0\1\0\0\0\2" + bytes(4000)
MP4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + random_bytes(300)
DISK_IMAGE = bytes(32_768) + b"\1CD001\1\0LINUX" + b" " * 60 + random_bytes(3000)

NO_LOGS = {
    "PNG": PNG + random_bytes(999),
    "SQLite": SQLITE,
    "SQLite with newlines": SQLITE + b"\n\0\0\n",
    "MP4": MP4,
    "MP4 with newlines": MP4 + b"\n" + MP4,
    "disk image": DISK_IMAGE,
    "random bytes": random_bytes(2000),
    "random bytes without newlines": random_bytes(2001).replace(b"\n", b"_"),
    "gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\3" + random_bytes(99),
    "UTF-16, little end first": '{"turn":1,"ts":1.0,"data":1}\n'.encode("utf-16-le"),
    "UTF-16, big end first": '{"turn":1,"ts":1.0,"data":1}\n'.encode("utf-16-be"),
    "UTF-16 with its mark": '{"turn":1,"ts":1.0,"data":1}\n'.encode("utf-16"),
    "invalid UTF-8": b"\xff\xfe\xfd text\n",
    "Latin-1": b"caf\xe9\n",
    "text": b"Dear diary,\n\ntoday I wrote to the wrong file.\n",
    "text without newline": b"Dear diary",
    "Markdown": b"# Notes\n",
    "CSV": b"turn,ts,data\n1,2,3\n",
    "array": b"[1, 2, 3]\n",
    "array without newline": b"[1, 2, 3]",
    "number": b"7\n",
    "string": b'"turn"\n',
    "null": b"null\n",
    "empty object": b"{}\n",
    "empty object without newline": b"{}",
    "object of another kind": b'{"name": "agent", "version": 3}\n',
    "object of another kind without newline": b'{"name": "agent", "version": 3}',
    "lines of another kind": b'{"event": "start"}\n{"event": "end"}\n',
    "two objects in an array": b'[{"turn":1,"ts":1.5,"data":1}]\n',
    "a byte order mark and no record": b"\xef\xbb\xbf{}\n",
}


# Lines that begin as records do, or are JSON objects of a record's kind.
BAD_RECORDS = {
    "Latin-1": b'{"turn":1,"ts":1.0,"data":"caf\xe9"}\n',
    "no data": b'{"turn":1,"ts":1.5}\n',
    "no ts": b'{"turn":1,"data":1}\n',
    "a member more": b'{"turn":1,"ts":1.5,"data":1,"meta":{},"step":1}\n',
    "turn a bool": b'{"turn":true,"ts":1.5,"data":1}\n',
    "turn a float": b'{"turn":1.0,"ts":1.5,"data":1}\n',
    "turn a string": b'{"turn":"1","ts":1.5,"data":1}\n',
    "turn null": b'{"turn":null,"ts":1.5,"data":1}\n',
    "turn negative": b'{"turn":-1,"ts":1.5,"data":1}\n',
    "turn huge": b'{"turn":9007199254740992,"ts":1.5,"data":1}\n',
    "ts a string": b'{"turn":1,"ts":"2026-01-01","data":1}\n',
    "ts a bool": b'{"turn":1,"ts":true,"data":1}\n',
    "meta a list": b'{"turn":1,"ts":1.5,"data":1,"meta":[]}\n',
    "meta a string": b'{"turn":1,"ts":1.5,"data":1,"meta":"x"}\n',
    "an unfinished string": b'{"turn":1,"ts":1.5,"data":"x\n',
    "two objects in a line": b'{"turn":1,"ts":1,"data":1}{"turn":2,"ts":1,"data":1}\n',
    "depth 100,000": b'{"turn":1,"ts":1.5,"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
}


@pytest.mark.parametrize("recover", RECOVERIES)
@pytest.mark.parametrize("kind", NO_LOGS)
def test_a_file_that_is_no_log_is_refused_and_left_alone(path, kind, recover):
    put(path, NO_LOGS[kind])

    errors = refusals(path, {**READS, **WRITES}, recover=recover)
    report = Checkpointer(path, recover=recover).verify()

    for error in errors:
        assert type(error) is NotALogError
        assert (error.offset, error.seq) == (0, 1)
        facts = (str(path), "does not look like a checkpoint log", error.reason)
        check_words(error, *facts, advice="Name another path")
        assert "recover=" not in str(error), "no mode goes on from it"
    assert report.records == 0
    assert report.damage is not None
    assert not report.ok
    assert snapshot(path.parent) == {"run.jsonl": NO_LOGS[kind]}


@pytest.mark.parametrize("recover", RECOVERIES)
def test_a_file_of_pretty_printed_json_is_no_log(path, recover):
    put(path, b'{\n  "name": "agent",\n  "version": "1.0"\n}\n')

    [error] = refusals(path, WRITES, recover=recover)

    assert isinstance(error, NotALogError)


@pytest.mark.parametrize("kind", BAD_RECORDS)
def test_a_first_line_that_is_a_bad_record_is_damage(path, kind):
    put(path, BAD_RECORDS[kind])

    errors = refusals(path, {**READS, **WRITES})
    damage = Checkpointer(path).verify().damage

    assert damage is not None
    for error in errors:
        assert type(error) is CorruptLogError
        assert (error.offset, error.seq, error.reason) == (0, 1, damage.reason)
        check_words(error, str(path), "byte 0", error.reason, advice="recover='salvage'")


ZEROS = {
    "zeros, then text": bytes(32_768) + b"CD001 a volume",
    "zeros, then bytes beyond ASCII": bytes(512) + bytes(range(128, 256)) * 8,
    "zeros, a newline, then binary": bytes(32_768) + b"\n\0\1\2\3CD001\0\0\1",
}


@pytest.mark.parametrize("kind", ZEROS)
def test_a_binary_file_that_begins_with_empty_sectors_is_left_alone(path, kind):
    put(path, ZEROS[kind])

    [error] = refusals(path, WRITES)

    assert isinstance(error, NotALogError)


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n\r\n", b" \n\t\n"])
def test_a_file_of_nothing_is_an_empty_log(path, content):
    put(path, content)

    ckpt = Checkpointer(path)
    last, report = ckpt.last_record, ckpt.verify()
    record = ckpt.save("first")

    assert last is None
    assert (report.records, report.ok) == (0, True)
    assert (record.seq, record.turn) == (1, 1)
    assert path.read_bytes().startswith(content + b'{"turn":1,')
    assert seen(Checkpointer(path).records()) == [(1, 1, "first")]


# -- lines among records that are none -------------------------------------------------------


@pytest.mark.parametrize("make", [build, plain, mixed])
@pytest.mark.parametrize(
    "kind",
    [*BAD_RECORDS, "text", "Markdown", "CSV", "invalid UTF-8", "array", "number", "string", "null"],
)
def test_a_line_that_is_no_record_is_damage_where_it_stands(path, make, kind):
    log = make([1, {"a": 2}, 3])
    line = {**NO_LOGS, **BAD_RECORDS}[kind]

    for index in (1, 3):
        before = b"".join(log.lines[:index])
        put(path, before + line + b"".join(log.lines[index:]))
        [error] = refusals(path, {"records": read_all})
        damage = Checkpointer(path).verify().damage

        assert type(error) is CorruptLogError
        assert (error.offset, error.seq) == (len(before), index + 1)
        check_words(error, str(path), f"byte {len(before)}", advice="recover='salvage'")
        assert damage is not None
        assert (damage.offset, damage.seq, damage.reason) == (
            error.offset,
            error.seq,
            error.reason,
        )
    refusals(path, WRITES)


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]", "not an object"),
        (b"7", "not an object"),
        (b"{", "not JSON"),
        (b"\xef\xbb\xbf" + plain([1]).lines[0], "byte order mark"),
        (b'{"turn":1,"ts":1.5}', "no 'data'"),
        (b'{"turn":1,"ts":1.5,"data":1,"who":2}', "no member 'who'"),
        (b'{"turn":true,"ts":1.5,"data":1}', "turn is not a whole number"),
        (b'{"turn":1,"ts":"now","data":1}', "ts is not a number"),
        (b'{"turn":1,"ts":1.5,"data":1,"meta":[]}', "meta is not an object"),
        (b'{"turn":1,"ts":1.5,"data":1,"sum":"x"}', "sum does not fit"),
        (b'{"turn":1,"ts":1.5,"data":' + b"[" * 9**6 + b"]" * 9**6 + b"}", "nested more than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reason_says_what_is_wrong_with_a_line(path, line, reason):
    log = build([1])
    put(path, log.content + line + b"\n")

    errors = refusals(path, {"last_record": READS["last_record"], **WRITES})

    assert all(reason in error.reason for error in errors)
    assert all(error.offset == len(log.content) for error in errors)


BEYOND = {
    "sys.set_int_max_str_digits": b"9" * 5000,
    "sys.setrecursionlimit": b'["a\\"[[[",' * 9999 + b"1" + b"]" * 9999,
}


def is_read_here(text):
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize("recover", RECOVERIES)
@pytest.mark.parametrize("limit", BEYOND)
def test_a_line_beyond_a_limit_of_this_process_is_refused_and_left_alone(path, limit, recover):
    if is_read_here(BEYOND[limit]):
        pytest.skip("this Python reads it")
    line = b'{"turn":7,"ts":1.5,"data":%s,"meta":{}}' % BEYOND[limit]
    for behind in (b"\n", b"", b"\n" + plain([1]).content):
        put(path, plain([1]).content + line + behind)

        errors = refusals(path, {"records": read_all, **WRITES}, recover=recover)
        with pytest.raises(ReaderLimitError):
            Checkpointer(path, recover=recover).verify()

        for error in errors:
            assert type(error) is ReaderLimitError
            assert error.seq == 2
            check_words(error, str(path), "record 2", limit, advice="Raise the limit")


def test_a_line_beyond_a_limit_is_judged_in_memory_of_a_few_times_its_length(path, digit_limit):
    digit_limit(4300)
    line = b'{"turn":1,"ts":1.5,"data":[%s,"%s"]}\n' % (b"9" * 5000, b"x\\n" * 700_000)
    put(path, line)
    ckpt = Checkpointer(path)

    tracemalloc.start()
    try:
        with pytest.raises(ReaderLimitError):
            list(ckpt.records())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 12 * len(line)


def test_a_record_beyond_a_limit_is_read_once_the_limit_is_raised(path, digit_limit):
    Checkpointer(path).save(10**1000)
    put(path, path.read_bytes() + plain([10**1000]).content)

    digit_limit(700)
    refusals(path, {"records": read_all, "at": READS["at"]}, recover="salvage")
    digit_limit(0)
    records = list(Checkpointer(path, recover="salvage").records())

    assert [record.data for record in records] == [10**1000] * 2


def test_lines_that_end_in_cr_lf_are_read_and_written_on(path):
    content = plain([1, {"a": "b"}]).content.replace(b"\n", b"\r\n")
    put(path, content)

    before = seen(Checkpointer(path).records())
    Checkpointer(path).save(3)

    assert before == [(1, 1, 1), (2, 2, {"a": "b"})]
    assert path.read_bytes().startswith(content)
    assert seen(Checkpointer(path).records()) == [*before, (3, 3, 3)]
    assert Checkpointer(path).verify().ok


@pytest.mark.parametrize("make", [build, plain, mixed])
def test_a_byte_order_mark_before_a_record_is_named(path, make):
    put(path, b"\xef\xbb\xbf" + make([1, 2]).content)

    errors = refusals(path, {**READS, **WRITES} if make is plain else {"records": read_all})

    for error in errors:
        check_words(error, "byte 0", advice="recover='salvage'")
        assert "byte order mark" in error.reason or "sum does not fit" in error.reason


@pytest.mark.parametrize("make", [build, plain, mixed])
def test_blank_lines_between_records_are_nothing(path, make):
    log = make([1, 2, 3])
    put(path, b"\n \n" + b"\n\r\n\n".join(log.lines) + b"\t\n\n")

    before = seen(Checkpointer(path).records())
    Checkpointer(path).save(4)

    assert before == log.records
    assert seen(Checkpointer(path).records()) == [*before, (4, 4, 4)]
    assert Checkpointer(path).verify().ok


@pytest.mark.parametrize("make", [build, plain, mixed])
@pytest.mark.parametrize("blanks", [b" ", b"  \t", b"\r", b"\n ", b"\n\n\r"])
def test_blanks_behind_the_last_line_do_not_spoil_the_next_record(path, make, blanks):
    log = make([1, 2])
    put(path, log.content + blanks)

    # Whether the blanks are dropped with a warning or kept does not matter.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TornTailWarning)
        Checkpointer(path).save("new")

    assert seen(Checkpointer(path).records()) == [*log.records, (3, 3, "new")]


@pytest.mark.parametrize("blanks", [b" ", b"\t", b"\r", b"\n "])
def test_a_file_of_blanks_does_not_spoil_the_first_record(path, blanks):
    put(path, blanks)

    Checkpointer(path).save("new")

    assert seen(Checkpointer(path).records()) == [(1, 1, "new")]


def test_hand_written_lines_may_have_spaces_other_orders_and_no_meta(path):
    put(
        path,
        b'{"ts": 2, "data": {"b": 1}, "turn": 7}\n'
        b' {"turn" : 8 , "data":null,"meta":null,"ts":1e9}\t\n'
        b'{"data":[1.0],"meta":{"label":"x"},"ts":1.5,"turn":0}',
    )

    records = list(Checkpointer(path).records())
    saved = Checkpointer(path).save("new")

    assert seen(records) == [(1, 7, {"b": 1}), (2, 8, None), (3, 0, [1.0])]
    assert [record.meta for record in records] == [{}, {}, {"label": "x"}]
    assert (saved.seq, saved.turn) == (4, 1)
    assert Checkpointer(path).verify().ok


# -- newer formats ---------------------------------------------------------------------------


def newer_line(log: Log, version: int = 2) -> bytes:
    text = body(len(log.lines) + 1, 1.5, {"from": "the future"})
    return seal(text, len(log.lines) + 1, b"00000000", version=version)[0]


NEWER = {
    "alone": lambda log, line: line,
    "without its newline": lambda log, line: log.content + line[:-1],
    "last": lambda log, line: log.content + line,
    "in the middle": lambda log, line: log.content + line + build([1]).content,
    "with a newer sum": lambda log, line: log.content + line[:-3] + b'-and-more:+/"}\n',
    "with a flipped bit": lambda log, line: log.content + line.replace(b"future", b"futurd"),
    "behind lines without sum": lambda log, line: plain([1, 2]).content + line,
}


@pytest.mark.parametrize("recover", RECOVERIES)
@pytest.mark.parametrize("where", NEWER)
@pytest.mark.parametrize("version", [2, 9, 10, 123456789])
def test_a_newer_format_is_refused_and_left_alone_whatever_the_mode(path, where, recover, version):
    log = build([1, 2])
    content = NEWER[where](log, newer_line(log, version))
    put(path, content)

    errors = refusals(path, {**READS, **WRITES}, recover=recover)
    damage = Checkpointer(path, recover=recover).verify().damage

    for error in errors:
        assert type(error) is NewerFormatError
        assert (error.version, error.supported) == (version, 1)
        check_words(error, str(path), f"format {version}", advice="Upgrade agent-checkpoint")
    assert damage is not None
    assert damage.newer == version


@pytest.mark.parametrize("recover", RECOVERIES)
@pytest.mark.parametrize("front", [b"", bytes(600) + b"\n"], ids=["first", "behind NULs"])
def test_a_newer_line_with_a_nul_in_it_is_refused_with_an_error_of_ours(path, recover, front):
    log = build([1, 2])
    put(path, log.content + front + newer_line(log).replace(b"future", b"fut\0re"))

    errors = refusals(path, {**READS, **WRITES}, recover=recover)

    assert all(isinstance(error, (NewerFormatError, CorruptLogError)) for error in errors)
    assert not Checkpointer(path, recover=recover).verify().ok


@pytest.mark.parametrize("recover", ["prefix", "salvage"])
def test_no_mode_rewrites_a_log_that_has_newer_lines_behind_its_damage(path, recover):
    log = build([1, 2, 3])
    put(path, log.lines[0] + b"garbage\n" + log.lines[2] + newer_line(log))

    [error] = refusals(path, WRITES, recover=recover)

    assert isinstance(error, NewerFormatError)


@pytest.mark.parametrize("recover", ["prefix", "salvage"])
def test_the_offset_of_a_newer_line_behind_damage_is_its_own(path, recover):
    log = build([1, 2, 3])
    before = log.lines[0] + b"garbage\n" + log.lines[2]
    put(path, before + newer_line(log))

    [error] = refusals(path, WRITES, recover=recover)

    assert error.offset == len(before)


@pytest.mark.parametrize("recover", RECOVERIES)
def test_verify_reports_a_foreign_file_with_a_newer_line_in_it(path, recover):
    put(path, b"garbage\n" + newer_line(build([])))

    report = Checkpointer(path, recover=recover).verify()

    assert report.damage is not None
    assert not report.ok


def test_a_sum_of_format_0_is_no_newer_format(path):
    log = build([1])
    put(path, log.content + newer_line(log, 0))

    [error] = refusals(path, WRITES)

    assert type(error) is CorruptLogError


# -- large lines -----------------------------------------------------------------------------

MEGABYTE = 1_000_000
LONGEST = 128 * 1024 * 1024


def write_long_line(path: Path, before: bytes, *, end: bytes) -> None:
    with path.open("wb") as file:
        file.write(before)
        for _ in range(200):
            file.write(b"x" * MEGABYTE)
        file.write(end)


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "notes").write_text("mine")

    with pytest.raises(StorageError) as caught:
        Checkpointer(tmp_path / "notes" / "run.jsonl").save(1)

    check_words(
        caught.value, "Not a directory", repr(str(tmp_path / "notes")), advice="Mend the cause"
    )
    assert snapshot(tmp_path) == {"notes": b"mine"}


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_of_200_mb_that_is_no_record_is_refused_and_left_alone(tmp_path, end):
    path = tmp_path / "run.jsonl"
    log = build([1, 2])
    write_long_line(path, log.content, end=end)
    size = path.stat().st_size

    ckpt = Checkpointer(path)
    with pytest.raises(CorruptLogError) as caught:
        ckpt.save(3)

    assert path.stat().st_size == size
    assert caught.value.offset == len(log.content)
    check_words(caught.value, f"longer than {LONGEST} bytes", advice="recover='prefix'")
    path.unlink()


def test_a_file_of_one_line_of_200_mb_is_no_log(tmp_path):
    path = tmp_path / "run.jsonl"
    write_long_line(path, b"", end=b"")
    size = path.stat().st_size

    with pytest.raises(NotALogError) as caught:
        Checkpointer(path).last_record  # noqa: B018

    assert path.stat().st_size == size
    check_words(caught.value, "longer than", advice="Name another path")
    path.unlink()


@pytest.mark.parametrize("number", [1, 2])
def test_a_record_of_200_mb_is_refused(path, number):
    state = ["x" * (200 * MEGABYTE // number)] * number
    put(path, build([1]).content)
    before = snapshot(path.parent)

    with pytest.raises(RecordTooLargeError) as caught:
        Checkpointer(path).save(state)

    assert caught.value.size > caught.value.limit == LONGEST - 256
    check_words(caught.value, "200000", str(LONGEST - 256), advice="in a file of its own")
    assert snapshot(path.parent) == before


def test_the_tags_count_as_well(path):
    with pytest.raises(RecordTooLargeError):
        Checkpointer(path).save("x" * (LONGEST // 2), meta={"text": "x" * (LONGEST // 2)})

    assert not path.exists()


def test_the_longest_record_that_is_saved_can_be_read(path):
    state = "x" * (LONGEST - 256 - 4)  # quotes, and the braces of the tags

    with Checkpointer(path, durability="flush") as ckpt:
        ckpt.save(state)
        with pytest.raises(RecordTooLargeError):
            ckpt.save(state + "x")
        last = ckpt.last_record

    assert last is not None
    assert last.data == state
    assert Checkpointer(path).verify().ok
    path.unlink()
