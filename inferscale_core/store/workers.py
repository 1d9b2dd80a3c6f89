"""The workers that have joined. They serve many tenants, so this table belongs to none."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Case, case, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.errors import NotFound, WorkerIdTaken
from inferscale_core.ids import ModelRevision, RecipeHash, TenantId, UserId, WorkerId
from inferscale_core.memory.workers import EmbedderIdentity, Joined, Worker
from inferscale_core.store.rows import WorkerRow

_END_WORKER = text("SELECT inferscale_end_worker(:worker_id)")
_USERS_OF_MODEL = text(
    "SELECT tenant_id, user_id"
    " FROM inferscale_users_of_model(:model, :after_tenant, :after_user, :max_users)"
)


class WorkerRegistry:
    """A worker id belongs to one instance, a process, at a time.

    Another takes its place when the lease has ended or the first drains, or when it is reached at
    the same address, as one that has crashed and started again is. The first is refused from then
    on, so two never take each other's place in turn.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def join(self, worker: Worker, *, lease_s: float, renewal: bool) -> Joined:
        """Registers the worker or renews its lease. `renewal`: this instance has joined before.

        A new instance has started with an empty cache and arena: it holds no user any more, and
        what receipts still wanted of the old instance has happened. Raises WorkerIdTaken.
        """
        known = (
            await self._session.execute(
                select(
                    WorkerRow.instance_id,
                    WorkerRow.address,
                    WorkerRow.draining,
                    (WorkerRow.last_seen_at > func.now() - timedelta(seconds=lease_s)),
                )
                .where(WorkerRow.worker_id == worker.worker_id)
                .with_for_update()
            )
        ).one_or_none()
        instance_id, address, draining, is_live = known or ("", "", False, False)
        is_new = instance_id != worker.instance_id
        if is_new and (renewal or (is_live and not draining and address != worker.address)):
            raise WorkerIdTaken(worker.worker_id, address)
        await self._write(worker, expected=instance_id or worker.instance_id)
        if is_new:
            await self._session.execute(_END_WORKER, {"worker_id": worker.worker_id})
            return Joined.NEW
        return Joined.RENEWED if is_live else Joined.BACK

    async def _write(self, worker: Worker, *, expected: str) -> None:
        """`expected`: the instance that the row may hold; another has come at the same moment."""
        values = {
            "instance_id": worker.instance_id,
            "address": worker.address,
            "model": worker.model,
            "model_revision": worker.model_revision,
            "recipe": worker.recipe,
            "recipe_hash": worker.recipe_hash,
            "embedder_id": worker.embedder.embedder_id,
            "embedder_revision": worker.embedder.revision,
            "embedder_dimension": worker.embedder.dimension,
            "draining": worker.draining,
            "max_fact_tokens": worker.max_fact_tokens,
            "last_seen_at": func.now(),
        }
        written = await self._session.scalar(
            insert(WorkerRow)
            .values(worker_id=worker.worker_id, joined_at=func.now(), **values)
            .on_conflict_do_update(
                constraint="workers_pkey",
                set_={**values, "joined_at": _joined_at(worker)},
                where=WorkerRow.instance_id == expected,
            )
            .returning(WorkerRow.worker_id)
        )
        if written is None:
            raise WorkerIdTaken(worker.worker_id, (await self.get(worker.worker_id)).address)

    async def live(self, max_age_s: float, model: str | None = None) -> list[Worker]:
        """Workers seen within `max_age_s`, of one model or of all, in order of their ids."""
        query = select(WorkerRow).where(
            WorkerRow.last_seen_at > func.now() - timedelta(seconds=max_age_s)
        )
        if model is not None:
            query = query.where(WorkerRow.model == model)
        rows = await self._session.scalars(query.order_by(WorkerRow.worker_id))
        return [_worker(row) for row in rows]

    async def get(self, worker_id: WorkerId) -> Worker:
        """Raises NotFound."""
        row = await self._session.scalar(select(WorkerRow).where(WorkerRow.worker_id == worker_id))
        if row is None:
            raise NotFound("worker", worker_id)
        return _worker(row)

    async def remove(self, worker_id: WorkerId) -> None:
        """For good: its pending receipt lines end. Raises NotFound."""
        gone = await self._session.scalar(
            delete(WorkerRow).where(WorkerRow.worker_id == worker_id).returning(WorkerRow.worker_id)
        )
        if gone is None:
            raise NotFound("worker", worker_id)
        await self._session.execute(_END_WORKER, {"worker_id": worker_id})

    async def users_of_model(
        self, model: str, *, after: tuple[TenantId, UserId] | None = None, limit: int = 1_000
    ) -> list[tuple[TenantId, UserId]]:
        """Users with facts, of the tenants that list this model; the next page starts `after` one.

        Crosses tenants, and tells ids alone: a worker that has just started must encode them all.
        """
        after_tenant, after_user = after or ("", "")
        rows = await self._session.execute(
            _USERS_OF_MODEL,
            {
                "model": model,
                "after_tenant": after_tenant,
                "after_user": after_user,
                "max_users": limit,
            },
        )
        return [(TenantId(tenant_id), UserId(user_id)) for tenant_id, user_id in rows.tuples()]


def _worker(row: WorkerRow) -> Worker:
    return Worker(
        worker_id=WorkerId(row.worker_id),
        instance_id=row.instance_id,
        address=row.address,
        model=row.model,
        model_revision=ModelRevision(row.model_revision),
        recipe=row.recipe,
        recipe_hash=RecipeHash(row.recipe_hash),
        embedder=EmbedderIdentity(row.embedder_id, row.embedder_revision, row.embedder_dimension),
        draining=row.draining,
        max_fact_tokens=row.max_fact_tokens,
    )


def _joined_at(worker: Worker) -> Case[datetime]:
    """When this instance joined first: it holds no copy of a user from before."""
    is_same = WorkerRow.instance_id == worker.instance_id
    return case((is_same, WorkerRow.joined_at), else_=func.now())
