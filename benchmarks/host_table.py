"""The table of docs/benchmarks.md about what one request costs the host."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rows import Row
from benchmarks.tables import source, table

PARTS = ("params", "engine", "parse", "match", "plan", "step", "launch", "done")


def host_table(rows: Sequence[Row]) -> str:
    lines = [
        [row["request"], row["caches"], *(round(row[part]) for part in (*PARTS, "all"))]
        for row in rows
    ]
    return table(["request", "caches", *PARTS, "all, µs"], lines) + source(rows)
