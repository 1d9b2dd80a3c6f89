"""Which workers have held a user, so that a delete can ask each of them to forget."""

from __future__ import annotations

import builtins

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.store.rows import HolderRow, UserRow


class HolderRepository:
    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def add(self, user_id: UserId, worker_id: WorkerId) -> None:
        """Commit this before the worker is first asked anything about the user.

        Waits for writers of the user: a delete that runs now either sees this holder, or has
        removed everything before the holder can read it. A user whom nobody has written is not
        noted, since nothing of it can be held.
        """
        is_known = await self._session.scalar(
            select(UserRow.user_id)
            .where(UserRow.tenant_id == self._tenant_id, UserRow.user_id == user_id)
            .with_for_update(read=True)
        )
        if is_known is not None:
            await self._session.execute(
                insert(HolderRow)
                .values(
                    tenant_id=self._tenant_id,
                    user_id=user_id,
                    worker_id=worker_id,
                    since=func.now(),
                )
                .on_conflict_do_nothing()
            )

    async def list(self, user_id: UserId) -> builtins.list[WorkerId]:
        found = await self._session.scalars(
            select(HolderRow.worker_id)
            .where(HolderRow.tenant_id == self._tenant_id, HolderRow.user_id == user_id)
            .order_by(HolderRow.worker_id)
        )
        return [WorkerId(worker_id) for worker_id in found]
