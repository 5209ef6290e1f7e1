"""Whether this thread has a mutex: if so, a signal handler runs in the middle of what it guards."""

from __future__ import annotations

import threading


def is_mine(mutex: threading.RLock) -> bool:
    """Tell whether this thread has *mutex*."""
    # What threading.Condition asks too. A note of our own could be cut off from its act by Ctrl-C.
    return mutex._is_owned()  # type: ignore[attr-defined,no-any-return]
