"""The key that a user's chunks on disk are sealed with, made when a worker first asks for it."""

from __future__ import annotations

import secrets

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import TenantId, UserId
from inferscale_core.memory.disk_keys import DISK_KEY_BYTES, DiskKey
from inferscale_core.store.rows import DiskKeyRow, UserRow


class DiskKeyRepository:
    """One key for each user and KV epoch. What raises the epoch destroys the key with it."""

    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def current(self, user_id: UserId) -> DiskKey | None:
        """The key of the user's present epoch. None for a user whom nobody has written yet.

        Making one waits for writers of the user, and they for the end of this transaction.
        """
        return await self._find(user_id) or await self._make(user_id)

    async def _find(self, user_id: UserId) -> DiskKey | None:
        row = (
            await self._session.execute(
                select(DiskKeyRow.kv_epoch, DiskKeyRow.secret).where(
                    DiskKeyRow.tenant_id == self._tenant_id, DiskKeyRow.user_id == user_id
                )
            )
        ).one_or_none()
        return DiskKey(row[0], row[1]) if row else None

    async def _make(self, user_id: UserId) -> DiskKey | None:
        epoch = await self._session.scalar(
            select(UserRow.kv_epoch)
            .where(UserRow.tenant_id == self._tenant_id, UserRow.user_id == user_id)
            .with_for_update(read=True)
        )
        if epoch is None:
            return None
        await self._session.execute(
            insert(DiskKeyRow)
            .values(
                tenant_id=self._tenant_id,
                user_id=user_id,
                kv_epoch=epoch,
                secret=secrets.token_bytes(DISK_KEY_BYTES),
                created_at=func.now(),
            )
            .on_conflict_do_nothing()
        )
        return await self._find(user_id)
