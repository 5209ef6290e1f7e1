"""Saves of several threads that meet share one write.

Those who come while a thread is writing queue behind a lock, the gate. The first through it waits
for the writer, closes the queue and writes all of it at once; those behind it find their own item
done. (One gate for all: if each thread had a lock of its own, all of them would ask for the
interpreter lock at the same moment.)

An interrupt (Ctrl-C) can end any of these lines. So every lock is taken by ``with``, nothing is
handed from thread to thread, and whoever finds its item not done writes it: then it does not matter
who came too late for a queue, or lost the thread that was about to write for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from .errors import ReentrantSaveError
from .stores._mutex import is_mine, let_go


class Item(Protocol):
    """What is to be written; the commit sets ``done``, whether it succeeds or not."""

    done: bool


ItemT = TypeVar("ItemT", bound=Item)


class SharedWrite(Generic[ItemT]):
    """Commits the items that wait together, from one thread at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: _Queue[ItemT] = _Queue()
        # All locks are reentrant: a signal handler runs in the middle of a save.
        self._writing = threading.RLock()

    def run(self, item: ItemT, commit: Callable[[list[ItemT]], None]) -> None:
        """Return when *item* has been committed, by this thread or by another."""
        if is_mine(self._writing):
            # The thread at the next gate waits for this one, which would wait for it.
            raise ReentrantSaveError(self._name)
        queue = self._queue
        is_in_handler = is_mine(queue.gate)
        try:
            queue.items.append(item)
            with queue.gate:
                if not item.done:
                    with self._writing:
                        commit(self._taken(queue, item))
        except BaseException:
            # As `locked` does it, without its two calls more for each save.
            item.done = True  # The caller sees an error, so it must not be written later.
            let_go(self._writing)
            if not is_in_handler:
                let_go(queue.gate)
            raise

    def _taken(self, queue: _Queue[ItemT], own: ItemT) -> list[ItemT]:
        """Take what waits in *queue*; if that is more than *own*, who comes now waits elsewhere."""
        taken = [] if own.done else [own]
        waiting = queue.items
        while waiting:
            item = waiting.popleft()
            if item is not own and not item.done:
                taken.append(item)
        if len(taken) > 1 and self._queue is queue:
            self._queue = _Queue()
        return taken


class _Queue(Generic[ItemT]):
    """Items that wait for the writer before them, and the gate they wait at."""

    __slots__ = ("gate", "items")

    def __init__(self) -> None:
        self.items: deque[ItemT] = deque()
        self.gate = threading.RLock()
