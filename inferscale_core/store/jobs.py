"""Runs the queue's jobs in this process.

A job is waiting, then running in one process, then gone. A handler that raises, or is cut off at
shutdown, leaves its job waiting for a next attempt. A process that dies leaves its jobs running
with a heartbeat that stops; another process puts them back. So a job ends only by a handler that
returned, and handlers must bear to run twice.

An encode job that fails `MAX_ATTEMPTS` times in a row is parked, and its facts say why. A change of
the user, or a worker of the model that joins, sets it going again with all its attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import procrastinate
import psycopg
from procrastinate.jobs import Job as QueueJob
from procrastinate.retry import BaseRetryStrategy, RetryDecision
from procrastinate.worker import Worker as QueueWorker
from sqlalchemy import URL, make_url

from inferscale_core.errors import InferScaleError
from inferscale_core.store import queueing
from inferscale_core.store.database import Store
from inferscale_core.store.embedded import conninfo
from inferscale_core.store.queueing import QUEUE, EncodeJob, ForgetJob, Job, QueueDepth
from inferscale_core.telemetry.failures import error_code
from inferscale_core.telemetry.logs import bind, get_logger

_log = get_logger(__name__)

AnyJob = TypeVar("AnyJob", EncodeJob, ForgetJob)

MAX_ATTEMPTS = 12
"""About four minutes with the waits of QueueTimes: longer than a worker needs to restart, which
wakes its jobs anyway. What fails for longer needs a change or an operator, and should be seen."""

_RESTART_PAUSE_S = 1.0
"""Between two attempts to run the queue on a database that cannot be reached."""


@dataclass(frozen=True, slots=True)
class JobHandlers:
    """A handler returns when the work is done, and raises to be called again later."""

    encode: Callable[[EncodeJob], Awaitable[None]]
    forget: Callable[[ForgetJob], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """Seconds. A job of a killed process waits for up to stalled_after + sweep.

    poll: a waiting job is found after at most this long where no listener tells at once.
    first_backoff, max_backoff: between attempts of a job that fails again and again; each wait is
    twice the one before.
    grace: time that running handlers have at shutdown.
    """

    poll: float = 1.0
    heartbeat: float = 5.0
    stalled_after: float = 20.0
    sweep: float = 5.0
    first_backoff: float = 1.0
    max_backoff: float = 30.0
    grace: float = 10.0

    def backoff(self, attempts: int) -> float:
        """The wait behind the last of `attempts`, the first of which is 1."""
        return min(self.max_backoff, self.first_backoff * 2.0 ** min(attempts - 1, 20))


class JobQueue:
    """Runs up to `concurrency` jobs at once; two with the same lock never together.

    `listen_url` is a direct URL of the database for the queue's own connections and its listener;
    without it the queue uses the store's URL and polls, which works through a pooler.
    """

    def __init__(
        self,
        store: Store,
        handlers: JobHandlers,
        *,
        concurrency: int,
        listen_url: str | URL | None = None,
        times: QueueTimes | None = None,
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._concurrency = concurrency
        self._url = make_url(listen_url) if listen_url else store.url
        self._listens = listen_url is not None
        self._times = times or QueueTimes()
        self._stopping = asyncio.Event()
        self._worker: QueueWorker | None = None
        self._running: set[int] = set()

    async def run(self) -> None:
        """Until `stop`, over database restarts. Cancelling it stops too."""
        while not self._stopping.is_set():
            try:
                await self._run_once()
            except (procrastinate.exceptions.ProcrastinateException, psycopg.Error) as exc:
                _log.warning("jobs.interrupted", exc=exc)
            if not self._stopping.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _RESTART_PAUSE_S)

    def stop(self) -> None:
        """Takes no more jobs; `run` returns when the running ones have ended or were cut off."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()  # type: ignore[no-untyped-call]

    async def depth(self) -> QueueDepth:
        async with self._store.system() as transaction:
            return await queueing.depth(transaction.session)

    async def _run_once(self) -> None:
        app = self._app()
        async with app.open_async():
            self._worker = QueueWorker(
                app,
                queues=[QUEUE],
                name=None,
                concurrency=self._concurrency,
                fetch_job_polling_interval=self._times.poll,
                listen_notify=self._listens,
                delete_jobs="always",
                install_signal_handlers=False,
                update_heartbeat_interval=self._times.heartbeat,
                stalled_worker_timeout=self._times.stalled_after,
                shutdown_graceful_timeout=self._times.grace,
            )
            sweeper = asyncio.create_task(self._sweep(self._worker), name="job_queue_sweeper")
            try:
                if not self._stopping.is_set():
                    await self._worker.run()  # type: ignore[no-untyped-call]
            finally:
                self._worker = None
                sweeper.cancel()
                await asyncio.gather(sweeper, return_exceptions=True)

    def _app(self) -> procrastinate.App:
        connector = procrastinate.PsycopgConnector(
            conninfo=conninfo(self._url),
            kwargs={"prepare_threshold": None},
            min_size=1,
            max_size=2,
            timeout=10.0,
        )
        app = procrastinate.App(connector=connector)
        backoff = _Backoff(self._times)

        async def encode(context: procrastinate.JobContext, /, **fields: str) -> None:
            await self._handle(context, EncodeJob(**fields), self._handlers.encode)  # type: ignore[arg-type]

        async def forget(context: procrastinate.JobContext, /, **fields: str) -> None:
            await self._handle(context, ForgetJob(**fields), self._handlers.forget)  # type: ignore[arg-type]

        for job, function in ((EncodeJob, encode), (ForgetJob, forget)):
            app.task(name=job.task, queue=QUEUE, pass_context=True, retry=backoff)(function)
        return app

    async def _handle(
        self,
        context: procrastinate.JobContext,
        job: AnyJob,
        handler: Callable[[AnyJob], Awaitable[None]],
    ) -> None:
        job_id = context.job.id
        assert job_id is not None, "a job that runs has been stored"
        self._running.add(job_id)
        with bind(tenant_id=job.tenant_id):
            try:
                await handler(job)
            except Exception as exc:
                _log.warning("job.failed", exc=exc, task=job.task, user_id=job.user_id)
                await self._try_later(job_id, job, context.job.attempts + 1, exc)
            finally:
                self._running.discard(job_id)

    async def _try_later(self, job_id: int, job: Job, attempts: int, failure: Exception) -> None:
        """The next attempt is a row of its own, and the failed one then ends like any other.

        It is not the failed row put back: that could meet the row of a change that commits at the
        same moment, and neither would run until a sweep. Raises `failure` where the database does
        not answer; then the queue itself puts the job back.
        """
        try:
            if isinstance(job, EncodeJob) and attempts >= MAX_ATTEMPTS:
                is_latest = await self._give_up(job_id, job, error_code(failure))
            else:
                async with self._store.system() as transaction:
                    is_latest = await queueing.try_again(
                        transaction.session, job_id, delay_s=self._times.backoff(attempts)
                    )
        except InferScaleError as exc:
            raise failure from exc
        if not is_latest:
            _log.info("job.superseded", task=job.task, user_id=job.user_id)

    async def _give_up(self, job_id: int, job: EncodeJob, reason: str) -> bool:
        """One transaction parks the job and fails what it was to encode."""
        async with self._store.transaction(job.tenant_id) as transaction:
            is_latest = await transaction.give_up_encoding(job_id, job, reason)
        if is_latest:
            _log.error("job.given_up", user_id=job.user_id, model=job.model, reason=reason)
        return is_latest

    async def _sweep(self, worker: QueueWorker) -> None:
        """Puts back the jobs of dead processes, and those that this one lost.

        Lost: the job was taken, or its handler had ended, when the database went away. Such a job
        is running for the database and not here, at two sweeps in a row.
        """
        suspects: set[int] = set()
        while True:
            await asyncio.sleep(self._times.sweep)
            try:
                async with self._store.system() as transaction:
                    lost: set[int] = set()
                    if worker.worker_id is not None:
                        taken = await queueing.doing(transaction.session, worker.worker_id)
                        idle = taken - self._running
                        suspects, lost = idle, idle & suspects
                    gone = await queueing.stalled(transaction.session, self._times.stalled_after)
                    found = sorted(lost.union(gone))
                    if found:
                        await queueing.requeue(transaction.session, found)
                        _log.warning("jobs.taken_up_again", count=len(found))
            except InferScaleError as exc:
                _log.warning("jobs.sweep_failed", exc=exc)


class _Backoff(BaseRetryStrategy):
    """For jobs that are cut off at shutdown, and those whose next attempt could not be written."""

    def __init__(self, times: QueueTimes) -> None:
        self._times = times

    def get_retry_decision(self, *, exception: BaseException, job: QueueJob) -> RetryDecision:
        wait_s = self._times.backoff(job.attempts + 1)
        return RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=wait_s))
