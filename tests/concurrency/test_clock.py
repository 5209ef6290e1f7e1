"""The order of a log is that of its seqs, whatever the clock says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agent_checkpoint.checkpointer
from agent_checkpoint import Checkpointer


class Clock:
    """Stands for the ``time`` module and says what it was given, one after another."""

    def __init__(self, *says: float) -> None:
        self._says = list(says)

    def time(self) -> float:
        return self._says.pop(0)


def save_by(clock: Clock, monkeypatch: pytest.MonkeyPatch, ckpt: Checkpointer, *data: Any) -> None:
    monkeypatch.setattr(agent_checkpoint.checkpointer, "time", clock)
    for each in data:
        ckpt.save(each)


@pytest.mark.parametrize(
    "says",
    [
        (1716566401.5, 1716566400.25, 12.0),
        (1716566401.5, 1716566401.5, 1716566401.5),
        (0.0, -86400.5, 253402300800.0),
        (1.5, 0.1 + 0.2, 1e-7),
    ],
    ids=["backwards", "equal", "far away", "fractions"],
)
def test_the_order_is_that_of_saving_and_ts_is_what_the_clock_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, says: tuple[float, ...]
) -> None:
    save_by(Clock(*says), monkeypatch, Checkpointer(path), "a", "b", "c")

    records = list(Checkpointer(path).records())

    assert [record.data for record in records] == ["a", "b", "c"]
    assert [(record.seq, record.turn) for record in records] == [(1, 1), (2, 2), (3, 3)]
    assert [record.ts for record in records] == list(says)


def test_the_newest_record_is_the_last_one_and_not_the_latest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ckpt = Checkpointer(path)
    monkeypatch.setattr(agent_checkpoint.checkpointer, "time", Clock(300.0, 200.0, 100.0))
    for data in ("first", "second", "third"):
        ckpt.save(data, turn=7)

    again = Checkpointer(path)

    assert again.last_record is not None
    assert again.last_record.data == "third"
    assert again.at(7).data == "third"


def test_a_clock_set_back_between_two_processes_does_not_stop_the_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpointer(path) as ckpt:
        save_by(Clock(2_000_000_000.0), monkeypatch, ckpt, "before")

    with Checkpointer(path) as ckpt:
        save_by(Clock(1_000_000_000.0), monkeypatch, ckpt, "after")

    assert [(r.seq, r.ts, r.data) for r in Checkpointer(path).records()] == [
        (1, 2_000_000_000.0, "before"),
        (2, 1_000_000_000.0, "after"),
    ]
    assert Checkpointer(path).verify().ok
