"""Jobs: written in the transaction of the change that needs them, so that both commit or neither.

Two jobs that would do the same work have the same queueing lock, and at most one of them waits at a
time. A change whose job is waiting already does not add another; it *holds* the waiting row until
it commits. Without that, a worker could take the job, miss the change that is not yet visible, and
finish; the change would then have no job. (The queue's workers skip rows that are held.)

A job that fails is followed by a new row for its next attempt, which is not added where a change
has queued one meanwhile: so an attempt never stands in the way of a change. A job that is given up
is parked: it waits for ever, until a change or a worker that joins wakes it.

Jobs hold ids, never text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import ClassVar

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.types import BigInteger

from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.store.identifiers import content_hash

QUEUE = "inferscale"

_NOTIFY = {
    "channel": f"procrastinate_queue_v1#{QUEUE}",
    "notice": '{"type": "job_inserted", "job_id": 0}',
}
"""What the queue's own trigger says of a new row, and not of one that waits no longer.
Source: procrastinate 3.10, procrastinate_notify_queue_job_inserted_v1."""


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """Encode what is missing of one user for one model.

    `traceparent`: the span of the write that queued it, empty outside of any trace.
    """

    task: ClassVar[str] = "encode_user"

    tenant_id: TenantId
    user_id: UserId
    model: str
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """Ask one worker again to forget what a receipt names."""

    task: ClassVar[str] = "forget_user"

    tenant_id: TenantId
    user_id: UserId
    receipt_id: str
    worker_id: WorkerId


Job = EncodeJob | ForgetJob


class JobState(StrEnum):
    """FAILING: it has failed, and waits for its next attempt. PARKED: it was given up."""

    WAITING = "waiting"
    FAILING = "failing"
    RUNNING = "running"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Parked jobs are in `num_jobs` alone, which is by task and state. `oldest_s`: age of the
    oldest job that waits, 0 when none does."""

    waiting: int
    running: int
    oldest_s: float
    num_jobs: Mapping[tuple[str, JobState], int] = field(default_factory=dict)


def lock_of(job: Job) -> str:
    """Equal for jobs that would do the same work, whatever caused them."""
    work = [value for name, value in asdict(job).items() if name != "traceparent"]
    return f"{job.task}:{content_hash(*work)[:40]}"


# The columns are those of procrastinate 3.10, whose schema our migrations apply.
_ENQUEUE = text(
    """
    WITH queued AS (
        INSERT INTO procrastinate_jobs
            (queue_name, task_name, lock, queueing_lock, args, scheduled_at)
        VALUES (
            :queue, :task, :lock, :lock, CAST(:arguments AS jsonb),
            CASE WHEN :delay_s > 0 THEN now() + make_interval(secs => :delay_s) END
        )
        ON CONFLICT (queueing_lock) WHERE status = 'todo'
        DO UPDATE SET
            scheduled_at = CASE
                WHEN excluded.scheduled_at IS NULL THEN NULL
                ELSE procrastinate_jobs.scheduled_at
            END,
            attempts = CASE
                WHEN excluded.scheduled_at IS NULL THEN 0
                ELSE procrastinate_jobs.attempts
            END
        RETURNING xmax <> 0 AS was_waiting
    )
    SELECT pg_notify(:channel, :notice) FROM queued WHERE was_waiting
    """
)

# Running jobs get a successor: they may be about to fail for want of the worker that joins, and to
# be parked after this statement has looked.
_WAKE = text(
    """
    WITH woken AS (
        INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
        SELECT DISTINCT ON (queueing_lock) queue_name, task_name, lock, queueing_lock, args
        FROM procrastinate_jobs
        WHERE queue_name = :queue AND task_name = :task AND args ->> 'model' = :model
          AND status IN ('todo', 'doing')
        ORDER BY queueing_lock
        ON CONFLICT (queueing_lock) WHERE status = 'todo'
        DO UPDATE SET scheduled_at = NULL, attempts = 0
        RETURNING xmax <> 0 AS was_waiting
    )
    SELECT pg_notify(:channel, :notice) FROM woken WHERE was_waiting
    """
)

_SUCCEED = text(
    """
    INSERT INTO procrastinate_jobs
        (queue_name, task_name, lock, queueing_lock, args, attempts, scheduled_at)
    SELECT queue_name, task_name, lock, queueing_lock, args, attempts + 1,
        coalesce(now() + make_interval(secs => CAST(:delay_s AS float)), 'infinity')
    FROM procrastinate_jobs WHERE id = :job_id AND status = 'doing'
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
    RETURNING id
    """
)

# The successor is as old as the first attempt, so that the queue's age shows work that fails.
_KEEP_AGE = text(
    """
    UPDATE procrastinate_events successor SET at = failed.at
    FROM procrastinate_events failed
    WHERE failed.job_id = :job_id AND failed.type = 'deferred'
      AND successor.job_id = :successor_id AND successor.type = 'deferred'
    """
)

_REQUEUE = text(
    """
    WITH gone AS (
        DELETE FROM procrastinate_jobs
        WHERE id = ANY (:job_ids) AND status = 'doing'
        RETURNING queue_name, task_name, lock, queueing_lock, args
    )
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    SELECT queue_name, task_name, lock, queueing_lock, args FROM gone
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO UPDATE SET scheduled_at = NULL
    """
).bindparams(bindparam("job_ids", type_=ARRAY(BigInteger)))

_STALLED = text(
    """
    SELECT j.id FROM procrastinate_jobs j
    LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
    WHERE j.status = 'doing' AND j.queue_name = :queue
      AND (w.id IS NULL OR w.last_heartbeat < now() - make_interval(secs => :stalled_after_s))
    FOR UPDATE OF j SKIP LOCKED
    """
)

_DOING = text("SELECT id FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = :worker_id")

_DEPTH = text(
    """
    SELECT count(*) FILTER (WHERE j.status = 'todo'),
        count(*) FILTER (WHERE j.status = 'doing'),
        coalesce(extract(epoch FROM now() - min(e.at) FILTER (WHERE j.status = 'todo')), 0)
    FROM procrastinate_jobs j
    LEFT JOIN procrastinate_events e ON e.job_id = j.id AND e.type = 'deferred'
    WHERE j.queue_name = :queue AND j.scheduled_at IS DISTINCT FROM 'infinity'
    """
)


_COUNTS = text(
    """
    SELECT task_name,
        CASE WHEN status = 'doing' THEN 'running'
             WHEN scheduled_at = 'infinity' THEN 'parked'
             WHEN attempts > 0 THEN 'failing'
             ELSE 'waiting' END AS state,
        count(*)
    FROM procrastinate_jobs
    WHERE queue_name = :queue AND status IN ('todo', 'doing')
    GROUP BY task_name, state
    """
)


async def enqueue(session: AsyncSession, job: Job, *, delay_s: float = 0.0) -> None:
    """The job runs some time after the transaction's commit, at least once.

    One that waits already is not added again, and no longer waits for its next attempt when this
    one has no delay.
    """
    await session.execute(
        _ENQUEUE,
        {
            "queue": QUEUE,
            "task": job.task,
            "lock": lock_of(job),
            "arguments": json.dumps(asdict(job)),
            "delay_s": delay_s,
            **_NOTIFY,
        },
    )


async def wake(session: AsyncSession, model: str) -> None:
    """A worker of the model has joined: no encode job waits for its next attempt any longer."""
    fields = {"queue": QUEUE, "task": EncodeJob.task, "model": model, **_NOTIFY}
    await session.execute(_WAKE, fields)


async def try_again(session: AsyncSession, job_id: int, *, delay_s: float) -> bool:
    """A running job has failed: it runs again after `delay_s`. End it after the commit.

    False when a newer job for the same work waits, which needs no other beside it.
    """
    return await _succeed(session, job_id, delay_s)


async def park(session: AsyncSession, job_id: int) -> bool:
    """A running job has failed too often. End it after the commit.

    False when a newer job for the same work waits; then nothing is given up.
    """
    return await _succeed(session, job_id, None)


async def _succeed(session: AsyncSession, job_id: int, delay_s: float | None) -> bool:
    successor_id = await session.scalar(_SUCCEED, {"job_id": job_id, "delay_s": delay_s})
    if successor_id is None:
        return False
    await session.execute(_KEEP_AGE, {"job_id": job_id, "successor_id": successor_id})
    return True


async def requeue(session: AsyncSession, job_ids: Sequence[int]) -> None:
    """Puts running jobs back as new ones.

    As new ones, so that the process that was thought dead and ends the job after all ends nothing:
    by then a change may rely on the job to run again.
    """
    await session.execute(_REQUEUE, {"job_ids": list(job_ids)})


async def stalled(session: AsyncSession, stalled_after_s: float) -> list[int]:
    """Running jobs whose process is gone or has been silent for so long."""
    found = await session.scalars(_STALLED, {"queue": QUEUE, "stalled_after_s": stalled_after_s})
    return list(found)


async def doing(session: AsyncSession, queue_worker_id: int) -> set[int]:
    """Jobs that one queue worker has taken and not ended."""
    return set(await session.scalars(_DOING, {"worker_id": queue_worker_id}))


async def depth(session: AsyncSession) -> QueueDepth:
    waiting, running, oldest_s = (await session.execute(_DEPTH, {"queue": QUEUE})).one()
    counts = (await session.execute(_COUNTS, {"queue": QUEUE})).all()
    num_jobs = {(task, JobState(state)): count for task, state, count in counts}
    return QueueDepth(waiting, running, float(oldest_s), num_jobs)
