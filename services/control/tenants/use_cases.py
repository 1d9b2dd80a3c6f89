"""Tenants, their keys and their quotas.

The operator names a tenant; a tenant's key may leave the name out and may name no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.errors import InvalidInput, PermissionDenied
from inferscale_core.ids import TenantId
from inferscale_core.memory.tenants import ApiKey, Quotas, Tenant
from inferscale_core.rpc.identity import OperatorPrincipal, Principal, TenantPrincipal
from inferscale_core.store import Store
from inferscale_core.telemetry.logs import get_logger
from services.control.auth import new_key
from services.control.tenants.convert import CreateTenant

FIRST_KEY_LABEL = "first key"
OPERATOR = "operator"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CreatedTenant:
    """`secret` is the first key's, and exists nowhere else."""

    tenant: Tenant
    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True)
class CreatedKey:
    key: ApiKey
    secret: str


class TenantUseCases:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, command: CreateTenant) -> CreatedTenant:
        """Raises InvalidInput when the tenant exists."""
        key = new_key()
        async with self._store.transaction(command.tenant_id) as tx:
            tenant = await tx.tenants.create(command.display_name, command.models, command.quotas)
            stored = await tx.api_keys.add(key.key_id, FIRST_KEY_LABEL, key.secret_hash)
            await tx.audit.record(OPERATOR, "create_tenant", ids={"key": [key.key_id]})
        _log.info("tenant.created", tenant_id=tenant.tenant_id)
        return CreatedTenant(tenant, stored, key.secret)

    async def get(self, caller: Principal, tenant_id: TenantId | None) -> Tenant:
        """Raises PermissionDenied for another's tenant, NotFound for one that does not exist."""
        async with self._store.transaction(_tenant_of(caller, tenant_id)) as tx:
            return await tx.tenants.get()

    async def set_quotas(self, tenant_id: TenantId, quotas: Quotas) -> Tenant:
        async with self._store.transaction(tenant_id) as tx:
            tenant = await tx.tenants.set_quotas(quotas)
            await tx.audit.record(OPERATOR, "set_quotas")
            return tenant

    async def create_key(
        self, caller: Principal, tenant_id: TenantId | None, label: str
    ) -> CreatedKey:
        key = new_key()
        async with self._store.transaction(_tenant_of(caller, tenant_id)) as tx:
            await tx.tenants.get()
            stored = await tx.api_keys.add(key.key_id, label, key.secret_hash)
            await tx.audit.record(_actor(caller), "create_api_key", ids={"key": [key.key_id]})
        return CreatedKey(stored, key.secret)

    async def list_keys(self, caller: Principal, tenant_id: TenantId | None) -> list[ApiKey]:
        async with self._store.transaction(_tenant_of(caller, tenant_id)) as tx:
            await tx.tenants.get()
            return await tx.api_keys.list()

    async def revoke_key(
        self, caller: Principal, tenant_id: TenantId | None, key_id: str
    ) -> ApiKey:
        """Refused from the commit on. A key may revoke itself. Raises NotFound."""
        async with self._store.transaction(_tenant_of(caller, tenant_id)) as tx:
            key = await tx.api_keys.revoke(key_id)
            await tx.audit.record(_actor(caller), "revoke_api_key", ids={"key": [key_id]})
            return key


def _tenant_of(caller: Principal, tenant_id: TenantId | None) -> TenantId:
    match caller:
        case TenantPrincipal() if tenant_id in (None, caller.tenant_id):
            return caller.tenant_id
        case OperatorPrincipal() if tenant_id is not None:
            return tenant_id
        case OperatorPrincipal():
            raise InvalidInput("tenant_id", "is empty; the operator must name a tenant")
    raise PermissionDenied("this credential belongs to another tenant")


def _actor(caller: Principal) -> str:
    return caller.key_id if isinstance(caller, TenantPrincipal) else OPERATOR
