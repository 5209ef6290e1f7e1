"""The command: which rows to measure, where, and what becomes of the results."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import machine, report
from bench.registry import ROWS
from bench.row import Measured, Row, Setting

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("RESULTS.md")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description="Measure every promised figure; a full run writes bench/RESULTS.md.",
        epilog="Exit status: 0 measured, 1 a figure is not met (with --strict), 2 wrong usage.",
    )
    parser.add_argument("--quick", action="store_true", help="a short run that is only printed")
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="ROW",
        help=f"measure this row and only print it; may be repeated: {', '.join(names)}",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 if a figure is not met")
    parser.add_argument(
        "--folder",
        type=Path,
        default=REPOSITORY / "build",
        help="measure on the disk of this folder (default: build/ of the repository)",
    )
    return parser.parse_args(argv)


def _measure(row: Row, folder: Path, *, quick: bool) -> Measured:
    folder.mkdir()
    try:
        return row.measure(
            Setting(
                folder=folder,
                source=REPOSITORY / "src",
                quick=quick,
                say=lambda text: print(f"{row.name}: {text}", file=sys.stderr, flush=True),
            )
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, keep. A missed figure is a result, not an error, unless ``--strict``."""
    chosen = _arguments(argv)
    rows = [row for row in ROWS if chosen.only is None or row.name in chosen.only]
    chosen.folder.mkdir(parents=True, exist_ok=True)
    results: list[tuple[Row, Measured]] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=chosen.folder) as made:
        folder = Path(made)
        print(machine.described(folder), flush=True)
        kind = machine.file_system(folder)
        if kind in machine.IN_MEMORY:
            print(f"{kind} is no disk: choose another --folder to measure syncs", file=sys.stderr)
        for row in rows:
            measured = _measure(row, folder / row.name, quick=chosen.quick)
            results.append((row, measured))
            print("\n" + report.words(row, measured), flush=True)
        if not chosen.quick and chosen.only is None:
            RESULTS.write_text(report.page(results, folder), encoding="utf-8")
    missed = [figure for _, one in results for figure in one.figures if not figure.is_met]
    print()
    for figure in missed:
        print(f"{figure.verdict}: {figure.demand.what}, demanded {figure.demand}")
    if not missed:
        print("every figure is met")
    return 1 if missed and chosen.strict else 0
