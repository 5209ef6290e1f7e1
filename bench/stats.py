"""Medians, percentiles, and how they are written down."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """Return the 50th percentile of *values*."""
    return float(statistics.median(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of *values* that at least *percent* of them do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return float(ordered[max(0, int(rank) - 1)])


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Write down the lowest and the highest of *values*."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def p50_p99(nanoseconds: Sequence[float]) -> str:
    """Write down two percentiles of times."""
    return f"{micros(median(nanoseconds))} / {micros(percentile(nanoseconds, 99))}"


def micros(nanoseconds: float) -> str:
    """Write down a time in microseconds."""
    return f"{nanoseconds / 1e3:.1f} µs"


def millis(nanoseconds: float) -> str:
    """Write down a time in milliseconds."""
    return f"{nanoseconds / 1e6:.1f} ms"


def megabytes(size: float) -> str:
    """Write down a size in millions of bytes."""
    return f"{size / 1e6:.2f} MB"
