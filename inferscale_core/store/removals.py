"""The ids of what is gone, so that workers and replayed requests learn of it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import TenantId, UserId
from inferscale_core.store.rows import RemovalRow
from inferscale_core.store.users import LockedUser

FACT = "fact"
TURN = "turn"


async def record_removals(
    session: AsyncSession,
    tenant_id: TenantId,
    user: LockedUser,
    kind: str,
    item_ids: Sequence[str],
) -> None:
    """Each gets a version of its own. The caller saves the user afterwards."""
    if item_ids:
        await session.execute(
            insert(RemovalRow).values(
                [
                    {
                        "tenant_id": tenant_id,
                        "user_id": user.user_id,
                        "memory_version": user.next_version(),
                        "kind": kind,
                        "item_id": item_id,
                        "removed_at": func.now(),
                    }
                    for item_id in item_ids
                ]
            )
        )


async def was_removed(
    session: AsyncSession, tenant_id: TenantId, user_id: UserId, fact_id: str
) -> bool:
    found = await session.scalar(
        select(RemovalRow.memory_version)
        .where(
            RemovalRow.tenant_id == tenant_id,
            RemovalRow.user_id == user_id,
            RemovalRow.item_id == fact_id,
            RemovalRow.kind == FACT,
        )
        .limit(1)
    )
    return found is not None
