"""The tables of docs/benchmarks.md that say what a change reaches."""

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


CHAPTERS_HEAD = (
    "facts",
    "order",
    "neighbours",
    "chapter",
    "dropped by a delete",
    "by an update",
    "at most",
    "longest chain",
    "see few",
    "similarity",
    "waves",
    "encoding",
    "served as text",
)


def chapters_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            f"{row['facts']:,}",
            row["order"],
            row["neighbours"],
            "none" if row["chapter"] is None else row["chapter"],
            f"{row['delete_closure']:.1%}",
            f"{row['update_closure']:.1%}",
            f"{row['update_closure_max']:.0%}",
            row["depth"],
            f"{row['see_few']:.0%}",
            f"{row['similarity']:.2f}",
            f"{row['waves']:.0f}",
            f"{row['busy_s']:.1f} s",
            f"{row['served_as_text']:.2%}",
        ]
        for row in rows
    ]
    return table(CHAPTERS_HEAD, lines) + source(rows)


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
