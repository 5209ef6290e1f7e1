"""The results as text: a table for the terminal, and the page that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from bench import machine
from bench.row import Figure, Measured, Row

Results = Sequence[tuple[Row, Measured]]


def _measured(figure: Figure) -> str:
    if figure.measured is None:
        return "–"
    digits = 0 if figure.demand.unit == "modules" else 2
    return f"{figure.measured:.{digits}f} {figure.demand.unit}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in body
    ]


def _verdicts(results: Results) -> list[str]:
    rows = [("what", "demanded", "measured", "verdict", "note")]
    for _, measured in results:
        for figure in measured.figures:
            rows.append(
                (
                    figure.demand.what,
                    str(figure.demand),
                    _measured(figure),
                    f"**{figure.verdict}**" if not figure.is_met else figure.verdict,
                    figure.note,
                )
            )
    return _table(rows)


def page(results: Results, folder: Path) -> str:
    """RESULTS.md."""
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    lines = [
        "<!-- Written by bench/run.py. Do not edit; run `make bench` instead. -->",
        "",
        "# Benchmark results",
        "",
        f"Measured on {day}: {machine.described(folder)}.",
        "",
        "Each figure is a ratio or a difference within one run; what is compared alternates, and"
        " the figures are medians. Absolute times belong to this machine, on which other programs"
        " may have run. Regenerate this page with `make bench`.",
        "",
        *_verdicts(results),
    ]
    for row, measured in results:
        lines += ["", f"## {row.title}", "", row.method, ""]
        lines += _table(
            [("for information", ""), *((fact.what, fact.value) for fact in measured.facts)]
        )
    return "\n".join(lines) + "\n"


def words(row: Row, measured: Measured) -> str:
    """One row for the terminal."""
    lines = [f"{row.title}  [{row.name}]"]
    for figure in measured.figures:
        note = f"  ({figure.note})" if figure.note else ""
        lines.append(
            f"  {figure.verdict:<12} {figure.demand.what}: {_measured(figure)},"
            f" demanded {figure.demand}{note}"
        )
    lines += [f"      {fact.what}: {fact.value}" for fact in measured.facts]
    return "\n".join(lines)
