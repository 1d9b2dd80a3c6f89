"""Tables of docs/benchmarks.md about tiers and eviction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.rows import Row
from benchmarks.tables import source, table

POLICIES = ("lru", "lfu", "ours", "oracle")


def _hit_rate(rows: Sequence[Row]) -> str:
    lines = [
        [f"{row['arena_ratio']:.0%}", *(f"{row[name]:.1%}" for name in POLICIES)] for row in rows
    ]
    return table(["facts that fit", *POLICIES], lines) + source(rows)


def _tenant_share(rows: Sequence[Row]) -> str:
    lines = [[f"{row['tenant_share']:.0%}", f"{row['others']:.1%}"] for row in rows]
    lines += [
        ["lru", f"{rows[0]['others_lru']:.1%}"],
        ["no flood", f"{rows[0]['others_alone']:.1%}"],
    ]
    return table(["share of a tenant", "hit rate of the others"], lines) + source(rows)


def _restore(rows: Sequence[Row]) -> str:
    timed = [row for row in rows if "ms" in row]
    lines = [
        [
            row["kind"],
            row["storage"],
            row["pages"],
            f"{row['mbytes']:.0f} MB",
            f"{row['ms']:.2f} ms",
            f"{row['gb_per_s']:.1f} GB/s",
            f"{row['limit_gb_per_s']:.1f} GB/s",
            f"{row['limit_ms'] / row['ms']:.0%}",
        ]
        for row in timed
    ]
    head = ["copy", "storage", "pages", "50 facts", "until done", "rate", "one copy", "of it"]
    return table(head, lines) + _meanwhile(rows) + source(rows)


def _meanwhile(rows: Sequence[Row]) -> str:
    """What the copies cost what runs on the GPU beside them."""
    busy = [row for row in rows if "matmul_ratio" in row]
    if not busy:
        return ""
    said = ", ".join(f"{row['matmul_ratio']:.2f} times as long ({row['storage']})" for row in busy)
    return f"\nMatrix products on the forward pass's stream take meanwhile: {said}.\n"


TIER_TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "hit_rate": _hit_rate,
    "tenant_share": _tenant_share,
    "gpu_tiers": _restore,
}
