"""Who did what to which ids, and when. Never text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import RequestId, TenantId, UserId
from inferscale_core.store.rows import AuditRow


@dataclass(frozen=True, slots=True)
class AuditEntry:
    at: datetime
    actor: str
    action: str
    user_id: UserId
    request_id: RequestId
    ids: Mapping[str, Sequence[str]]


class AuditLog:
    """The services may add entries; the database refuses them to change or remove one."""

    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def record(
        self,
        actor: str,
        action: str,
        *,
        user_id: UserId | None = None,
        request_id: RequestId | None = None,
        ids: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`actor`: the key's id, or "operator". `action`: for example "delete_memory"."""
        await self._session.execute(
            insert(AuditRow).values(
                tenant_id=self._tenant_id,
                at=func.now(),
                actor=actor,
                action=action,
                user_id=user_id or "",
                request_id=request_id or "",
                ids={kind: list(values) for kind, values in (ids or {}).items()},
            )
        )

    async def newest(self, limit: int) -> list[AuditEntry]:
        rows = await self._session.scalars(
            select(AuditRow)
            .where(AuditRow.tenant_id == self._tenant_id)
            .order_by(AuditRow.audit_id.desc())
            .limit(limit)
        )
        return [
            AuditEntry(
                row.at,
                row.actor,
                row.action,
                UserId(row.user_id),
                RequestId(row.request_id),
                row.ids,
            )
            for row in rows
        ]
