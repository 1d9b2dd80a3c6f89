"""Tables of Markdown, and where their rows come from."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rows import Row


def table(head: Sequence[object], lines: Sequence[Sequence[object]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in (head, rule, *lines))


def source(rows: Sequence[Row]) -> str:
    """A paragraph for each run's date, machine and versions, with its commands."""
    commands: dict[str, dict[str, None]] = {}
    for row in rows:
        commands.setdefault(_circumstances(row), {})[f"`{row['command']}`"] = None
    return "".join(f"\n{', '.join(given)}, {about}\n" for about, given in commands.items())


def _circumstances(row: Row) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    hardware = row["hardware"]
    gpu = f"{hardware['gpu']}, driver {hardware['driver']}, " if "gpu" in hardware else ""
    machine = f"{gpu}{hardware['cores']} cores of {hardware['cpu']}, {hardware['memory_gb']} GB"
    return f"{row['date']}, {machine}; {versions}."
