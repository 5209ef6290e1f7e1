"""What a row of the results is: what is demanded, as data, and how it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Callable

AT_MOST = "at most"
AT_LEAST = "at least"
UNDER = "under"


@dataclass(frozen=True)
class Demand:
    """One promised figure: ``what`` must be ``bound`` (at most, at least, under) ``limit``."""

    what: str
    bound: str
    limit: float
    unit: str

    def __str__(self) -> str:
        return f"{self.bound} {self.limit:g} {self.unit}"

    def is_met(self, measured: float) -> bool:
        """Compare *measured* with the limit."""
        if self.bound == AT_MOST:
            return measured <= self.limit
        if self.bound == UNDER:
            return measured < self.limit
        if self.bound == AT_LEAST:
            return measured >= self.limit
        raise AssertionError(f"a bound is {AT_MOST!r}, {AT_LEAST!r} or {UNDER!r}: {self.bound!r}")


@dataclass(frozen=True)
class Figure:
    """One measured value beside the demand it answers; ``None`` where it was not measured."""

    demand: Demand
    measured: float | None
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it was measured and meets its demand."""
        return self.measured is not None and self.demand.is_met(self.measured)

    @property
    def verdict(self) -> str:
        """The answer in words."""
        if self.measured is None:
            return "not measured"
        return "met" if self.is_met else "NOT met"


@dataclass(frozen=True)
class Fact:
    """A measured value that nobody promised, for whoever asks where the time goes."""

    what: str
    value: str


@dataclass(frozen=True)
class Measured:
    """What a row found out."""

    figures: tuple[Figure, ...]
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Setting:
    """Where and how thoroughly to measure."""

    folder: Path
    """An empty folder on the disk that is measured; what a row leaves in it is deleted."""
    source: Path
    """The folder that ``import agent_checkpoint`` is answered from."""
    quick: bool
    say: Callable[[str], None]
    """Tells a waiting reader what is being done."""


@dataclass(frozen=True)
class Row:
    """One row: its name for ``--only``, its subject, its method in words, and the measuring."""

    name: str
    title: str
    method: str
    demands: tuple[Demand, ...]
    measure: Callable[[Setting], Measured]
