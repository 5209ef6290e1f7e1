"""One call between two readings of the clock, in nanoseconds."""

from __future__ import annotations

import json
import os
from time import perf_counter_ns

from agent_checkpoint import Checkpointer
from bench.states import State


def save_ns(log: Checkpointer, state: State) -> int:
    """Time a save."""
    begun = perf_counter_ns()
    log.save(state)
    return perf_counter_ns() - begun


def dumps_ns(record: State) -> int:
    """Time the encoding of *record* as compact JSON, and nothing else."""
    begun = perf_counter_ns()
    json.dumps(record, separators=(",", ":"))
    return perf_counter_ns() - begun


def write_ns(fd: int, line: bytes) -> int:
    """Time a bare write."""
    begun = perf_counter_ns()
    os.write(fd, line)
    return perf_counter_ns() - begun


def durable_write_ns(fd: int, line: bytes) -> int:
    """Time a bare write and its sync."""
    begun = perf_counter_ns()
    os.write(fd, line)
    os.fdatasync(fd)
    return perf_counter_ns() - begun
