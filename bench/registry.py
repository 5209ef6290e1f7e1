"""Every row, in the order of the results. A new row is a module with a ``ROW``, named here."""

from __future__ import annotations

from bench import durable_save, flush_save, import_time, large_log, threads
from bench.row import Row

ROWS: tuple[Row, ...] = (
    durable_save.ROW,
    flush_save.ROW,
    threads.ROW,
    large_log.ROW,
    import_time.ROW,
)
