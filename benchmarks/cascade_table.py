"""The table of docs/benchmarks.md that says what an update reaches."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rows import Row
from benchmarks.tables import source, table

HEAD = (
    "facts",
    "neighbours",
    "from the newest",
    "longest chain allowed",
    "dropped, mean",
    "at most",
    "longest chain",
    "see text",
    "waves",
    "encoding",
    "served as text",
)


def cascade_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            f"{row['facts']:,}",
            row["neighbours"],
            "all" if row["newest_facts"] is None else row["newest_facts"],
            "any" if row["max_depth"] is None else row["max_depth"],
            f"{row['update_closure']:.1%}",
            f"{row['update_closure_max']:.0%}",
            row["depth"],
            f"{row['see_text']:.0%}",
            f"{row['waves']:.0f}",
            f"{row['busy_s']:.1f} s",
            f"{row['served_as_text']:.2%}",
        ]
        for row in rows
    ]
    return table(HEAD, lines) + source(rows)
