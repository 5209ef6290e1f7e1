"""The logs that the crash tests begin with: whole, torn in several ways, damaged."""

from __future__ import annotations

from tests.logs import build

STATES = ("one", {"text": "zwei \u2028 \U0001f600 " + "x" * 6000}, "three")
"""The states of the records of each of these logs."""

_lines = build([*STATES, "never acknowledged"]).lines

WHOLE = b"".join(_lines[:3])
HALF_A_LINE = WHOLE + _lines[3][:40]
LOST_BYTES = WHOLE + bytes(700)
NO_LAST_NEWLINE = WHOLE[:-1]
DAMAGED = WHOLE.replace(b"xxxx", b"xxXx", 1)
"""The second record is not what was written, and the third is."""


def kept(*seqs: int) -> dict[int, object]:
    """Return the states of the records *seqs*."""
    return {seq: STATES[seq - 1] for seq in seqs}
