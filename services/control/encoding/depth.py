"""How many jobs wait, for whoever watches the service."""

from __future__ import annotations

import asyncio

from inferscale_core.errors import InferScaleError
from inferscale_core.store import JobQueue, QueueDepth
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.metrics import QueueMetrics

READ_EVERY_S = 10.0
"""Metrics are collected every 15 s or more; the reading is one indexed query."""

_log = get_logger(__name__)


class JobDepth:
    """The queue's depth as it was read last. Metrics are collected in a thread that cannot ask."""

    def __init__(self, jobs: JobQueue) -> None:
        self._jobs = jobs
        self._last = QueueDepth(waiting=0, running=0, oldest_s=0.0)
        QueueMetrics(
            "jobs",
            depth=lambda: self._last.waiting,
            oldest_age_s=lambda: self._last.oldest_s,
        )

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            try:
                self._last = await self._jobs.depth()
            except InferScaleError as exc:
                _log.warning("job_depth.unknown", exc=exc)
            await asyncio.sleep(READ_EVERY_S)
