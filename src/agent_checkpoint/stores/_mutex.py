"""What an interrupt can do to a mutex, and what is done about it."""

from __future__ import annotations

import threading


def is_mine(mutex: threading.RLock) -> bool:
    """Tell whether this thread has *mutex*: a signal handler runs in the middle of its block."""
    # What threading.Condition asks too. A note of our own could be cut off from its act by Ctrl-C.
    return mutex._is_owned()  # type: ignore[attr-defined,no-any-return]


def let_go(mutex: threading.RLock) -> None:
    """Give up *mutex* if this thread still has it behind the `with` block that took it.

    Up to Python 3.10 an interrupt can hit between the end of the block and the giving up.
    """
    while is_mine(mutex):
        mutex.release()
