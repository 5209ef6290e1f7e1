"""Measure every promised figure and write ``bench/RESULTS.md``: ``python bench/run.py --help``.

Only puts the repository on the path, so that the code beside this folder is what is measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def run() -> int:
    """Put the repository on the path and do what the command line asks."""
    # Started as a script, Python puts bench/ first; its modules belong to the package `bench`.
    sys.path[0] = str(REPOSITORY)
    sys.path[1:1] = [str(REPOSITORY / "src"), str(REPOSITORY / "tools")]
    from bench.program import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
