"""A log with bits, bytes or lines that are not as they were written: noticed, and nothing dropped.

What was acknowledged may be unreadable, but not unnoticed, and not dropped as a torn tail.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest

from agent_checkpoint import Checkpointer, CheckpointError, CorruptLogError, Report
from tests.logs import FULL, NEW, Log, Seen, build, folder_in_memory, put, seen

# A space and an @ are one bit away from NUL, and so are bytes inside "é", "Ā" and "က".
STATES = [
    {"n": n, "text": f"turn {n} @home: 10 @ 2 é Ā က 😀 " + "The quick brown fox. " * (70 + n)}
    for n in range(5)
]
LOG = build(STATES)
SHORT = build([{"n": n, "text": "@ é " * n} for n in range(12)])


class Found(NamedTuple):
    """What a reader finds; None where it got an error of ours instead."""

    records: list[Seen] | None
    last: list[Seen] | None
    report: Report


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with folder_in_memory(tmp_path) as folder:
        yield folder


def find(ckpt: Checkpointer) -> Found:
    try:
        records = seen(ckpt.records())
    except CheckpointError:
        records = None
    try:
        last = ckpt.last_record
        lasts = seen([last] if last else [])
    except CheckpointError:
        lasts = None
    return Found(records, lasts, ckpt.verify())


def check_noticed(ckpt: Checkpointer, content: bytes, log: Log, case: str) -> Found:
    """Check that *content*, once *log*, is read as what it was or with an error, and verified."""
    put(Path(ckpt.path), content)

    found = find(ckpt)

    assert found.records in (None, log.records), f"{case}: silently other records"
    assert found.last in (None, log.records[-1:]), f"{case}: silently another last record"
    if found.records is None:
        assert found.report.damage is not None, f"{case}: verify() finds no damage"
    else:
        assert found.report.damage is None, f"{case}: verify() finds damage that reading does not"
    return found


def check_nothing_dropped(path: Path, whole: bytes, case: str) -> None:
    """Check that a save keeps *whole*, every byte of it, whether it is refused or goes through."""
    before = path.read_bytes()

    ckpt = Checkpointer(path, durability="flush")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ckpt.save(NEW)
    except CheckpointError:
        assert path.read_bytes() == before, f"{case}: a refused save changed the file"
    else:
        assert path.read_bytes().startswith(whole), f"{case}: a save dropped what was acknowledged"
    finally:
        ckpt.close()


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_is_noticed_and_drops_nothing(folder, bit):
    path, content = folder / "run.jsonl", LOG.content
    reader = Checkpointer(path, readonly=True)
    last_line = LOG.starts[-1] - 200
    harmless = []

    for at in range(bit if FULL else bit * 5, len(content), 1 if FULL else 43):
        case = f"bit {bit} of byte {at}"
        flipped = bytearray(content)
        flipped[at] ^= 1 << bit
        found = check_noticed(reader, bytes(flipped), LOG, case)
        if found.records is not None:
            harmless.append(at)
        # A save looks at the end of a log, so that is where every flip has to be tried.
        if at >= last_line or at % 11 == bit:
            whole = content[:-1] if at == len(content) - 1 else bytes(flipped)
            check_nothing_dropped(path, whole, case)

    assert set(harmless) <= {len(content) - 1}, "only the last newline adds nothing to a record"


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_the_newline_of_the_last_record_does_not_cost_it(folder, bit):
    path, content = folder / "run.jsonl", SHORT.content
    flipped = content[:-1] + bytes((content[-1] ^ 1 << bit,))

    found = check_noticed(Checkpointer(path), flipped, SHORT, f"bit {bit}")
    check_nothing_dropped(path, content[:-1] + b"\n", f"bit {bit}")

    assert found.records == SHORT.records
    assert found.report.torn is not None
    assert found.report.torn[:2] == (len(content) - 1, 1)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_a_log_of_one_record_is_noticed_and_drops_nothing(folder, bit):
    log = build([{"text": "one @ é"}])
    path, content = folder / "run.jsonl", log.content
    reader = Checkpointer(path, readonly=True)

    for at in range(len(content)):
        case = f"bit {bit} of byte {at}"
        flipped = bytearray(content)
        flipped[at] ^= 1 << bit
        check_noticed(reader, bytes(flipped), log, case)
        whole = content[:-1] if at == len(content) - 1 else bytes(flipped)
        check_nothing_dropped(path, whole, case)


@pytest.mark.parametrize("value", [0x00, 0xFF])
def test_a_byte_set_to_all_zeros_or_ones_is_never_silently_other_data(folder, value):
    path, content = folder / "run.jsonl", LOG.content
    reader = Checkpointer(path, readonly=True)
    in_the_last_line = range(LOG.starts[-1], len(content))

    for at in range(0, len(content), 1 if FULL else 37):
        hurt = bytearray(content)
        hurt[at] = value
        put(path, bytes(hurt))
        found = find(reader)

        if found.records == LOG.records[:-1] and value == 0:
            # NULs are what a crash leaves, and a byte that was NULled whole looks like that.
            assert at in in_the_last_line
            assert found.report.torn is not None
            assert found.report.torn.offset == LOG.starts[-1]
        else:
            assert found.records == (LOG.records if at == len(content) - 1 else None), at
            assert found.last in (None, LOG.records[-1:]), at
            assert not found.report.ok, at


# -- lines --------------------------------------------------------------------------------


def check_lines(path: Path, lines: list[bytes], damaged_at: int, seq: int) -> None:
    """Check that reading and verifying both name the byte where the first wrong line begins."""
    put(path, b"".join(lines))

    report = Checkpointer(path).verify()
    with pytest.raises(CorruptLogError) as caught:
        list(Checkpointer(path).records())

    assert (caught.value.offset, caught.value.seq) == (damaged_at, seq)
    assert report.damage is not None
    assert (report.damage.offset, report.damage.seq) == (damaged_at, seq)
    check_nothing_dropped(path, b"".join(lines), "lines")


@pytest.mark.parametrize("dropped", range(len(SHORT.lines) - 1))
def test_a_dropped_line_is_noticed(folder, dropped):
    lines = SHORT.lines[:dropped] + SHORT.lines[dropped + 1 :]

    check_lines(folder / "run.jsonl", lines, SHORT.starts[dropped], dropped + 1)


def test_a_last_line_cut_off_cleanly_is_what_no_sum_can_notice(folder):
    path = folder / "run.jsonl"
    put(path, b"".join(SHORT.lines[:-1]))

    found = find(Checkpointer(path))

    assert found.records == SHORT.records[:-1]
    assert found.report.ok


@pytest.mark.parametrize("doubled", range(len(SHORT.lines)))
def test_a_doubled_line_is_noticed(folder, doubled):
    lines = SHORT.lines[: doubled + 1] + SHORT.lines[doubled:]

    check_lines(folder / "run.jsonl", lines, SHORT.ends[doubled], doubled + 2)


@pytest.mark.parametrize("first", range(len(SHORT.lines) - 1))
def test_two_swapped_lines_are_noticed(folder, first):
    lines = list(SHORT.lines)
    lines[first : first + 2] = reversed(lines[first : first + 2])

    check_lines(folder / "run.jsonl", lines, SHORT.starts[first], first + 1)


def test_a_line_of_another_log_is_noticed(folder):
    other = build([{"other": n} for n in range(12)])
    lines = [*SHORT.lines[:6], other.lines[6], *SHORT.lines[7:]]

    check_lines(folder / "run.jsonl", lines, SHORT.starts[6], 7)


def test_a_line_whose_sum_was_made_anew_after_a_change_is_noticed_by_the_next_line(folder):
    forged = build(
        [{"n": 99} if n == 6 else state for n, (_, _, state) in enumerate(SHORT.records)]
    )
    lines = [*SHORT.lines[:6], forged.lines[6], *SHORT.lines[7:]]

    check_lines(folder / "run.jsonl", lines, len(b"".join(lines[:7])), 8)


@pytest.mark.parametrize("too_much", [-1, 1, 10])
def test_a_sum_that_tells_another_length_than_the_line_has_is_noticed(folder, too_much):
    text = SHORT.lines[0][: SHORT.lines[0].rindex(b',"sum"')]
    proven = b'%s,"sum":"1:1:%d:00000000:' % (text, len(text) + too_much)
    line = b'%s%08x"}\n' % (proven, crc32(proven))

    check_lines(folder / "run.jsonl", [line], 0, 1)


def test_the_end_of_a_log_is_enough_to_notice_what_stands_there(folder):
    path = folder / "run.jsonl"
    put(path, b"".join([*SHORT.lines[:-2], SHORT.lines[-1], SHORT.lines[-2]]))

    with pytest.raises(CorruptLogError):
        Checkpointer(path).last_record  # noqa: B018
