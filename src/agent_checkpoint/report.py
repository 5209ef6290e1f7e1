"""Report: what verify() found in a log."""

from __future__ import annotations

from typing import NamedTuple


class Torn(NamedTuple):
    """Bytes behind the last record that were never acknowledged."""

    offset: int
    length: int
    beginning: bytes


class Damage(NamedTuple):
    """The first place where the log is not what was written."""

    offset: int
    seq: int
    """Of the record that was expected there."""
    reason: str
    newer: int = 0
    """The format version found there, if it is a newer one than this release knows."""


class Report(NamedTuple):
    """What verify() found."""

    records: int
    """Whole records before the first damage."""
    bytes: int
    """The size of the log."""
    torn: Torn | None
    """Half a line at the end: harmless, dropped by the next save."""
    damage: Damage | None
    """The first place where the log is not what was written."""

    @property
    def ok(self) -> bool:
        """Whether every byte of the log is a whole record."""
        return self.torn is None and self.damage is None
