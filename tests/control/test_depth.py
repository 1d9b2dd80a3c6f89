"""What control says of its jobs to whoever collects its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from inferscale_core.store import EncodeJob, ForgetJob, JobQueue, JobState, QueueDepth
from inferscale_core.telemetry import names
from services.control.encoding import depth
from services.control.encoding.depth import JobDepth
from tests.control.harness import eventually
from tests.telemetry_capture import Capture, captured


class CountedJobs(JobQueue):
    def __init__(self, found: QueueDepth) -> None:
        self._found = found

    async def depth(self) -> QueueDepth:
        return self._found


@contextmanager
def watching(found: QueueDepth) -> Iterator[Capture]:
    with captured() as capture:
        task = asyncio.create_task(JobDepth(CountedJobs(found)).watch())
        try:
            yield capture
        finally:
            task.cancel()


async def test_every_task_and_state_is_a_series_also_when_it_has_no_jobs() -> None:
    found = QueueDepth(3, 1, 7.5, {(EncodeJob.task, JobState.PARKED): 2})

    with watching(found) as capture:

        async def has_come() -> dict[tuple[str, str], float] | None:
            num_jobs = {
                (dict(labels)[names.TASK], dict(labels)[names.STATE]): value
                for (name, labels), value in capture.values().items()
                if name == names.QUEUE_JOBS
            }
            return num_jobs if any(num_jobs.values()) else None

        num_jobs = await eventually(has_come)
    expected = {(task.task, state): 0 for task in (EncodeJob, ForgetJob) for state in JobState}
    assert num_jobs == expected | {("encode_user", "parked"): 2}
    assert depth.READ_EVERY_S <= 15
