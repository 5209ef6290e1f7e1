"""The fresh process that reads a log: prints time, memory and bytes read, as one line of JSON.

Usage: tail_process.py SOURCE import|last|verify [LOG TURN [WARM_UP_LOG]]
"""

from __future__ import annotations

import json
import re
import sys
from time import perf_counter_ns


def peak_bytes() -> int:
    """Return the most memory this process ever held."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    except OSError:
        found = None
    if found:
        return int(found.group(1)) * 1024
    # ru_maxrss of a child begins with its parent's peak on Linux, so it is the second choice.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def read_bytes() -> int:
    """How many bytes this process was given by its read calls so far; -1 where nobody counts."""
    try:
        with open("/proc/self/io", encoding="ascii") as io:
            found = re.search(r"rchar: (\d+)", io.read())
    except OSError:
        return -1
    return int(found.group(1)) if found else -1


def main(source: str, what: str, *arguments: str) -> None:
    """Do *what* and print what it took."""
    sys.path.insert(0, source)
    from agent_checkpoint import Checkpointer

    if what == "import":
        print(json.dumps({"peak_bytes": peak_bytes()}))
        return
    log, turn = arguments[0], int(arguments[1])
    if arguments[2:]:
        # Modules that are loaded at the first read are not bytes of the log.
        assert Checkpointer(arguments[2]).last_record is not None
    first, second = read_bytes(), read_bytes()
    # Asking for the count is itself a read, which is counted at the next question.
    asking = second - first
    begun = perf_counter_ns()
    checkpointer = Checkpointer(log)
    if what == "verify":
        checkpointer.verify()
        took_ns = perf_counter_ns() - begun
    else:
        newest = checkpointer.last_record
        data = newest.data if newest is not None else None
        took_ns = perf_counter_ns() - begun
        if newest is None or newest.turn != turn or not data:
            raise AssertionError(f"last_record is {newest}, not the record of turn {turn}")
    given = read_bytes() - second - asking
    peak = peak_bytes()
    checkpointer.close()
    print(json.dumps({"took_ns": took_ns, "peak_bytes": peak, "read_bytes": given}))


if __name__ == "__main__":
    main(*sys.argv[1:])
