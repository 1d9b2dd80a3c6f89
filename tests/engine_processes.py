"""The processes of a worker's engine."""

from __future__ import annotations

import psutil


def engine_processes(pid: int) -> list[psutil.Process]:
    """The worker's children, less the helper that tracks its shared memory."""
    children = psutil.Process(pid).children(recursive=True)
    return [c for c in children if "resource_tracker" not in " ".join(c.cmdline())]
