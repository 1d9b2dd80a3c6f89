"""What can be done within one transaction, for one tenant or for none."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.store import queueing
from inferscale_core.store.audit import AuditLog
from inferscale_core.store.changes import ChangeReader
from inferscale_core.store.deletions import DeletionRepository
from inferscale_core.store.disk_keys import DiskKeyRepository
from inferscale_core.store.encodings import EncodingRepository
from inferscale_core.store.facts import FactRepository
from inferscale_core.store.history import EndedHistory, end_history
from inferscale_core.store.holders import HolderRepository
from inferscale_core.store.queueing import EncodeJob, ForgetJob
from inferscale_core.store.requests import RequestLog
from inferscale_core.store.tenants import ApiKeyRepository, TenantRepository
from inferscale_core.store.turns import TurnRepository
from inferscale_core.store.users import UserRepository
from inferscale_core.store.workers import WorkerRegistry
from inferscale_core.telemetry.tracing import current_traceparent


class TenantTransaction:
    """The repositories of one tenant. Nothing in here commits.

    The tenant is locked twice: every repository asks for it in each query, and row security shows
    this transaction no other tenant's rows.
    """

    def __init__(self, session: AsyncSession, tenant_id: TenantId, dimension: int) -> None:
        self._session = session
        self.tenant_id = tenant_id
        self.tenants = TenantRepository(session, tenant_id)
        self.api_keys = ApiKeyRepository(session, tenant_id)
        self.users = UserRepository(session, tenant_id)
        self.disk_keys = DiskKeyRepository(session, tenant_id)
        self.holders = HolderRepository(session, tenant_id)
        self.deletions = DeletionRepository(session, tenant_id, self.holders)
        self.encodings = EncodingRepository(session, tenant_id)
        self.turns = TurnRepository(session, tenant_id, self.users)
        self.facts = FactRepository(
            session,
            tenant_id,
            dimension,
            self.users,
            self.turns,
            self.encodings,
            self.deletions,
        )
        self.changes = ChangeReader(session, tenant_id, self.users)
        self.requests = RequestLog(session, tenant_id)
        self.audit = AuditLog(session, tenant_id)

    async def queue_encoding(self, user_id: UserId, *, delay_s: float = 0.0) -> None:
        """One job for each model of the tenant. Ends every transaction that changes a user's
        facts or turns."""
        for model in (await self.tenants.get()).models:
            job = EncodeJob(self.tenant_id, user_id, model, current_traceparent() or "")
            await queueing.enqueue(self._session, job, delay_s=delay_s)

    async def give_up_encoding(self, job_id: int, job: EncodeJob, reason: str) -> bool:
        """Park the running job, and fail every fact that it leaves without a chunk.

        False, and nothing is done, when a newer job waits. Holds off the user's writers first, as
        they hold the user when they queue.
        """
        await self.users.hold_writers(job.user_id)
        if not await queueing.park(self._session, job_id):
            return False
        await self.encodings.give_up(job.user_id, job.model, reason)
        return True

    async def queue_forget(
        self, user_id: UserId, receipt_id: str, worker_id: WorkerId, *, delay_s: float = 0.0
    ) -> None:
        """Part of the delete's own transaction, with a delay that leaves time to do it at once."""
        job = ForgetJob(self.tenant_id, user_id, receipt_id, worker_id)
        await queueing.enqueue(self._session, job, delay_s=delay_s)


class SystemTransaction:
    """What belongs to no tenant. Sees no row of any."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.workers = WorkerRegistry(session)

    async def queue_encoding(self, tenant_id: TenantId, user_id: UserId, model: str) -> None:
        """For a worker that has just started and holds nothing."""
        await queueing.enqueue(self.session, EncodeJob(tenant_id, user_id, model))

    async def end_history(
        self, *, history_days: int, audit_days: int, max_rows: int
    ) -> EndedHistory:
        return await end_history(
            self.session, history_days=history_days, audit_days=audit_days, max_rows=max_rows
        )

    async def wake_encoding(self, model: str) -> None:
        """Jobs that failed for want of a worker, or were given up, run at once."""
        await queueing.wake(self.session, model)
