"""Tables of Markdown, and where their rows come from."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rows import Row


def table(head: Sequence[object], lines: Sequence[Sequence[object]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in (head, rule, *lines))


def source(rows: Sequence[Row]) -> str:
    row = rows[0]
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    hardware = row["hardware"]
    gpu = f"{hardware['gpu']}, driver {hardware['driver']}, " if "gpu" in hardware else ""
    machine = f"{gpu}{hardware['cores']} cores of {hardware['cpu']}, {hardware['memory_gb']} GB"
    commands = ", ".join(f"`{command}`" for command in dict.fromkeys(r["command"] for r in rows))
    return f"\n{commands}, {row['date']}, {machine}; {versions}.\n"
