"""A program whose saves are interrupted at random moments, as by Ctrl-C; run by test_interrupts.

python interrupts.py LOG DURABILITY THREADS INTERRUPTS SEED
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import threading

from agent_checkpoint import Checkpointer


def main() -> None:
    path, durability, threads, wanted, seed = sys.argv[1:]
    faulthandler.dump_traceback_later(240, exit=True)
    moments = random.Random(int(seed))
    ckpt = Checkpointer(path, durability=durability)
    acknowledged: list[int] = []
    is_armed = False
    interrupts = 0
    stop = threading.Event()

    def interrupt(*_: object) -> None:
        # Twice at the most: what has to be undone may itself be interrupted.
        nonlocal interrupts
        if is_armed:
            interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, moments.random() * 0.0005)
            raise KeyboardInterrupt

    def save_until_stopped() -> None:
        while not stop.is_set():
            acknowledged.append(ckpt.save({"by": "another thread"}).seq)

    others = [threading.Thread(target=save_until_stopped) for _ in range(int(threads))]
    for other in others:
        other.start()
    signal.signal(signal.SIGALRM, interrupt)
    while interrupts < int(wanted):
        try:
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, moments.random() * 0.001 + 1e-6)
                acknowledged.append(ckpt.save({"by": "the main thread"}).seq)
            finally:
                is_armed = False
        except KeyboardInterrupt:
            is_armed = False
        except SystemError as error:
            # What CPython 3.11.2 makes of it now and then if it comes in the middle of a handler.
            is_armed = False
            if type(error.__cause__) is not KeyboardInterrupt:
                raise
    signal.setitimer(signal.ITIMER_REAL, 0)
    stop.set()
    for other in others:
        other.join()
    acknowledged.append(ckpt.save({"by": "the main thread"}).seq)

    print(f"{interrupts} interrupts, {len(acknowledged)} acknowledged", file=sys.stderr)
    print(*acknowledged)


if __name__ == "__main__":
    main()
