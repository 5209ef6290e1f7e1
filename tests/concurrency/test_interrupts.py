"""Ctrl-C in the middle of a save: nothing hangs, nothing acknowledged is lost, saving goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_checkpoint import Checkpointer, ReentrantSaveError

PROGRAM = Path(__file__).with_name("interrupts.py")
INTERRUPTS = 150 if os.environ.get("CHECKPOINT_TESTS") == "quick" else 1000


@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize("durability", ["sync", "flush"])
def test_an_interrupted_save_hurts_no_other(tmp_path, durability, threads):
    log = tmp_path / "run.jsonl"
    seed = 7

    done = subprocess.run(
        [sys.executable, PROGRAM, log, durability, str(threads), str(INTERRUPTS), str(seed)],
        stdout=subprocess.PIPE,
        check=False,
    )

    assert done.returncode == 0
    acknowledged = [int(seq) for seq in done.stdout.split()]
    records = list(Checkpointer(log).records())
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) <= {record.seq for record in records}
    if threads:
        # A thread that was not interrupted wrote each of its saves once.
        main = [r.seq for r in records if r.data["by"] == "the main thread"]
        assert {r.seq for r in records} - set(acknowledged) <= set(main)


def test_a_save_in_a_signal_handler_in_the_middle_of_a_save_is_refused(tmp_path, monkeypatch):
    from agent_checkpoint.stores import _fsio

    ckpt = Checkpointer(tmp_path / "run.jsonl")
    seen = []

    def handler(*_):
        try:
            ckpt.save({"from": "handler"})
        except ReentrantSaveError as error:
            seen.append(str(error))

    def sync(fd):
        signal.raise_signal(signal.SIGUSR1)
        os.fsync(fd)

    ckpt.save({})
    monkeypatch.setattr(_fsio, "sync", sync)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        ckpt.save({"from": "loop"})
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert "in the middle of a save" in seen[0]
    assert [record.data for record in ckpt.records()] == [{}, {"from": "loop"}]
