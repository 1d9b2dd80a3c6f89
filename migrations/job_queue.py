"""The job queue's own schema, taken from the steps that every procrastinate release carries.

Steps are named by the release that brought them, and stay as they are in later releases. So a
migration that names its first and last step gives the same schema for ever. A release that needs
more gets a migration of ours that applies its further steps.
"""

from __future__ import annotations

from importlib.resources import files


def queue_steps(*, after: str = "", up_to: str) -> list[str]:
    """SQL of the steps behind `after` up to and with `up_to`, in order, `%` escaped."""
    folder = files("procrastinate.sql") / "migrations"
    steps = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".sql")}
    if up_to not in steps:
        raise RuntimeError(f"this procrastinate does not carry {up_to}: install 3.10 or later")
    names = sorted(name for name in steps if after < name <= up_to)
    return [steps[name].read_text().replace("%", "%%") for name in names]
