"""Checkpoints for agents: each finished piece of a run is durable the moment it is finished."""

from __future__ import annotations

from .checkpointer import Checkpointer
from .errors import (
    ArgumentError,
    CheckpointError,
    ClosedError,
    ConflictError,
    CorruptLogError,
    ForkedError,
    HandleError,
    LogReplacedError,
    NewerFormatError,
    NotALogError,
    NotCopyableError,
    PathError,
    PoisonedError,
    ReaderLimitError,
    ReadOnlyError,
    RecordNotFoundError,
    RecordTooLargeError,
    RecoveryWarning,
    ReentrantSaveError,
    RunLockedError,
    StorageError,
    TornTailWarning,
    UnknownOutcomeError,
    UnstorableError,
)
from .record import Record
from .report import Damage, Report, Torn

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "Checkpointer",
    "ClosedError",
    "ConflictError",
    "CorruptLogError",
    "Damage",
    "ForkedError",
    "HandleError",
    "LogReplacedError",
    "NewerFormatError",
    "NotALogError",
    "NotCopyableError",
    "PathError",
    "PoisonedError",
    "ReadOnlyError",
    "ReaderLimitError",
    "Record",
    "RecordNotFoundError",
    "RecordTooLargeError",
    "RecoveryWarning",
    "ReentrantSaveError",
    "Report",
    "RunLockedError",
    "StorageError",
    "Torn",
    "TornTailWarning",
    "UnknownOutcomeError",
    "UnstorableError",
    "__version__",
]
