"""The tenant of a transaction, and its API keys."""

from __future__ import annotations

import builtins

from sqlalchemy import func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.errors import InvalidInput, NotFound
from inferscale_core.ids import TenantId
from inferscale_core.memory.tenants import ApiKey, Quotas, Tenant
from inferscale_core.store.rows import ApiKeyRow, TenantRow


class TenantRepository:
    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def create(
        self, display_name: str, models: tuple[str, ...], quotas: Quotas | None = None
    ) -> Tenant:
        """Creates the tenant of this transaction. Raises InvalidInput when it exists."""
        limits = quotas or Quotas()
        row = await self._session.scalar(
            upsert(TenantRow)
            .values(
                tenant_id=self._tenant_id,
                display_name=display_name,
                models=list(models),
                max_facts=limits.max_facts,
                max_facts_per_user=limits.max_facts_per_user,
                created_at=func.now(),
            )
            .on_conflict_do_nothing()
            .returning(TenantRow)
        )
        if row is None:
            raise InvalidInput("tenant_id", f"{self._tenant_id!r} exists already")
        return _tenant(row)

    async def get(self) -> Tenant:
        """Raises NotFound."""
        row = await self._session.scalar(
            select(TenantRow).where(TenantRow.tenant_id == self._tenant_id)
        )
        return _tenant(self._found(row))

    async def set_quotas(self, quotas: Quotas) -> Tenant:
        """Facts above a lowered quota stay; none can be added. Raises NotFound."""
        row = await self._session.scalar(
            update(TenantRow)
            .where(TenantRow.tenant_id == self._tenant_id)
            .values(max_facts=quotas.max_facts, max_facts_per_user=quotas.max_facts_per_user)
            .returning(TenantRow)
        )
        return _tenant(self._found(row))

    def _found(self, row: TenantRow | None) -> TenantRow:
        if row is None:
            raise NotFound("tenant", self._tenant_id)
        return row


class ApiKeyRepository:
    """The database keeps the SHA-256 of a secret alone. Secrets are random, so that is enough."""

    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def add(self, key_id: str, label: str, secret_hash: str) -> ApiKey:
        row = await self._session.scalar(
            insert(ApiKeyRow)
            .values(
                tenant_id=self._tenant_id,
                key_id=key_id,
                label=label,
                secret_hash=secret_hash,
                created_at=func.now(),
            )
            .returning(ApiKeyRow)
        )
        assert row is not None, "an insert that did not fail returns its row"
        return _api_key(row)

    async def list(self) -> builtins.list[ApiKey]:
        """Oldest first, revoked keys included."""
        rows = await self._session.scalars(
            select(ApiKeyRow)
            .where(ApiKeyRow.tenant_id == self._tenant_id)
            .order_by(ApiKeyRow.created_at, ApiKeyRow.key_id)
        )
        return [_api_key(row) for row in rows]

    async def revoke(self, key_id: str) -> ApiKey:
        """The key is refused from the commit on. Again: the same answer. Raises NotFound."""
        row = await self._session.scalar(
            update(ApiKeyRow)
            .where(ApiKeyRow.tenant_id == self._tenant_id, ApiKeyRow.key_id == key_id)
            .values(revoked_at=func.coalesce(ApiKeyRow.revoked_at, func.now()))
            .returning(ApiKeyRow)
        )
        if row is None:
            raise NotFound("key", key_id)
        return _api_key(row)


def _tenant(row: TenantRow) -> Tenant:
    return Tenant(
        tenant_id=TenantId(row.tenant_id),
        display_name=row.display_name,
        models=tuple(row.models),
        created_at=row.created_at,
        quotas=Quotas(row.max_facts, row.max_facts_per_user),
        num_facts=row.num_facts,
    )


def _api_key(row: ApiKeyRow) -> ApiKey:
    return ApiKey(
        key_id=row.key_id,
        tenant_id=TenantId(row.tenant_id),
        label=row.label,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
    )
