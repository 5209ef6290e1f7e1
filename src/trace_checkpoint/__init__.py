"""The log under the name of its published description; it lives in ``agent_checkpoint``."""

from __future__ import annotations

from agent_checkpoint import Checkpointer, Record

__all__ = ["Checkpointer", "Record"]
