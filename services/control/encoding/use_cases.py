"""The jobs that every write queues: encoding on the owning worker, forgetting on every holder.

A handler that raises is run again later by the queue, with growing waits, so that a worker that is
away costs time and loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from inferscale_core.errors import Unavailable
from inferscale_core.ids import WorkerId
from inferscale_core.memory.deletion import DeletionReceipt, PurgeState
from inferscale_core.memory.encoding import EncodeResult
from inferscale_core.memory.workers import Worker
from inferscale_core.store import EncodeJob, ForgetJob, Store
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import annotate, link_to, span
from services.control.encoding.batches import batched
from services.control.encoding.forgetting import Forgetter
from services.control.worker_messages import Forgotten
from services.control.workers import UserAt, WorkerChannels, WorkerDirectory

RECORD_EVERY_S = 0.2
MAX_RECORDED = 64
"""Results of one transaction, and how long the first of them waits for others. A wave gives 2.5
results on average, so one commit for each would cost more than the encoding on a GPU."""

MAX_RESTARTS = 20
"""Of one run of a job; the queue runs it again after a pause."""

FORGET_LIMIT_S = 30.0

_log = get_logger(__name__)


class EncodeJobs:
    def __init__(self, store: Store, directory: WorkerDirectory, channels: WorkerChannels) -> None:
        self._store = store
        self._directory = directory
        self._channels = channels

    async def encode(self, job: EncodeJob) -> None:
        """Bring the user's chunks on the owning worker up to the present facts, and record them.

        Starts over when an update or a delete lands meanwhile: what the worker still reports of the
        facts as they were is discarded. A fact that is added meanwhile has queued a job of its own,
        which runs after this one. Raises Unavailable when no worker takes the user.
        """
        attributes = {names.TENANT_ID: job.tenant_id, names.USER_ID: job.user_id}
        with span(names.ENCODE, attributes, links=link_to(job.traceparent)):
            for _ in range(MAX_RESTARTS):
                if await self._encode_once(job):
                    return
                _log.info("encode.restarted", user_id=job.user_id)
            raise Unavailable(f"user {job.user_id!r} changes faster than it is encoded")

    async def _encode_once(self, job: EncodeJob) -> bool:
        """False when the user's facts changed under it and some results were stale.

        While the model's recipe changes, both owners encode: first the one that serves the user.
        """
        owners = await self._directory.owners(job.tenant_id, job.user_id, job.model)
        for worker in reversed(owners):
            if not await self._encode_on(job, worker):
                return False
        return True

    async def _encode_on(self, job: EncodeJob, worker: Worker) -> bool:
        annotate({names.WORKER_ID: worker.worker_id})
        user = await self._hold(job, worker.worker_id)
        if user.state.memory_version == 0:
            return True
        results = self._channels.client(worker).encode(user)
        batches = batched(results, max_items=MAX_RECORDED, max_age_s=RECORD_EVERY_S)
        async with aclosing(batches):
            async for batch in batches:
                if not await self._record(user, batch):
                    return False
        return await self._epoch(user) == user.state.kv_epoch

    async def _hold(self, job: EncodeJob, worker_id: WorkerId) -> UserAt:
        """Note that the worker may hold the user, before it is asked."""
        async with self._store.transaction(job.tenant_id) as tx:
            state = await tx.users.state(job.user_id)
            if state.memory_version > 0:
                await tx.holders.add(job.user_id, worker_id)
        return UserAt(job.tenant_id, job.user_id, state)

    async def _record(self, user: UserAt, results: Sequence[EncodeResult]) -> bool:
        async with self._store.transaction(user.tenant_id) as tx:
            kept = await tx.encodings.record(user.user_id, results, kv_epoch=user.state.kv_epoch)
        return kept == len({(result.fact, result.target) for result in results})

    async def _epoch(self, user: UserAt) -> int:
        async with self._store.transaction(user.tenant_id) as tx:
            return (await tx.users.state(user.user_id)).kv_epoch


class ForgetJobs:
    """What a deletion receipt still has to wait for: one job for each worker that held the user."""

    def __init__(self, store: Store, forgetter: Forgetter) -> None:
        self._store = store
        self._forgetter = forgetter

    async def forget(self, job: ForgetJob) -> None:
        """Ask the worker until it has acknowledged everything. A removed worker's lines have ended.

        Raises Unavailable while the worker does not answer or still has pages that are being read.
        """
        async with self._store.transaction(job.tenant_id) as tx:
            receipt = await tx.deletions.get(job.user_id, job.receipt_id)
            state = await tx.users.state(job.user_id)
        if not _waits_for(receipt, job.worker_id):
            return
        purge = await self._forgetter.forget(
            UserAt(job.tenant_id, job.user_id, state),
            job.worker_id,
            Forgotten((receipt.fact_id,), receipt.dependant_fact_ids),
            limit_s=FORGET_LIMIT_S,
        )
        async with self._store.transaction(job.tenant_id) as tx:
            await tx.deletions.acknowledge(
                job.receipt_id, job.worker_id, purge.dropped, pending=purge.pending
            )
        if purge.pending:
            raise Unavailable(f"worker {job.worker_id!r} still has pages that are being read")


def _waits_for(receipt: DeletionReceipt, worker_id: WorkerId) -> bool:
    return any(
        line.worker_id == worker_id and line.state is PurgeState.PENDING for line in receipt.lines
    )
