"""What an interrupt can do to a mutex, and what is done about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


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


def locked(mutex: threading.RLock, act: Callable[..., ResultT], *arguments: object) -> ResultT:
    """Return what *act* does with *mutex* taken; no interrupt leaves it taken."""
    is_outermost = not is_mine(mutex)
    try:
        with mutex:
            return act(*arguments)
    except BaseException:
        if is_outermost:
            let_go(mutex)
        raise
