"""How many jobs wait, fail and are given up, for whoever watches the service."""

from __future__ import annotations

import asyncio
from functools import partial

from inferscale_core.errors import InferScaleError
from inferscale_core.store import EncodeJob, ForgetJob, JobQueue, JobState, QueueDepth
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.metrics import QueueMetrics, jobs_by_state

READ_EVERY_S = 10.0
"""Metrics are collected every 15 s or more; the reading is two indexed queries."""

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
        for task in (EncodeJob.task, ForgetJob.task):
            for state in JobState:
                jobs_by_state(task, state, partial(self._count, task, state))

    def _count(self, task: str, state: JobState) -> int:
        return self._last.num_jobs.get((task, state), 0)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            try:
                self._last = await self._jobs.depth()
            except InferScaleError as exc:
                _log.warning("job_depth.unknown", exc=exc)
            await asyncio.sleep(READ_EVERY_S)
