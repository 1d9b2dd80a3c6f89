"""The client for whoever runs the service, and for a tenant that manages its own keys."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from inferscale_core.client import convert, records
from inferscale_core.client.connection import ClientOptions, Connection
from inferscale_core.client.unicode import refuses_lone_surrogates
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2, tenant_pb2
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import SyncServiceStub
from inferscale_core.rpc.pb.inferscale.v1.tenant_pb2_grpc import TenantServiceStub

_TENANT = "inferscale.v1.TenantService"
_SYNC = "inferscale.v1.SyncService"


@refuses_lone_surrogates
class AsyncOperator:
    """Tenants, keys and quotas. With a tenant's own key, only that tenant and its keys.

    `create_tenant` and `create_api_key` carry no request id and are not repeated: after
    Unavailable or DeadlineExceeded, look whether they were done.
    """

    def __init__(self, target: str, credential: str, options: ClientOptions | None = None) -> None:
        """credential: the operator's token, or a tenant's key."""
        self._connection = Connection(target, credential, options or ClientOptions())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Calls that are under way are cancelled."""
        await self._connection.close()

    async def create_tenant(
        self,
        tenant_id: str,
        models: Sequence[str],
        *,
        display_name: str = "",
        quotas: records.Quotas | None = None,
    ) -> records.CreatedTenant:
        """models: names as workers announce them; the first is the default. Not repeated by itself,
        since its secret is in the answer only.
        """
        request = tenant_pb2.CreateTenantRequest(
            tenant_id=tenant_id,
            display_name=display_name,
            models=models,
            quotas=convert.quotas_to_proto(quotas),
        )
        stub = self._tenants().CreateTenant
        response = await self._connection.call(
            f"{_TENANT}/CreateTenant", stub, request, repeatable=False
        )
        return records.CreatedTenant(
            convert.tenant_from_proto(response.tenant), response.api_key, response.key_id
        )

    async def get_tenant(self, tenant_id: str | None = None) -> records.TenantUsage:
        """None: the tenant that the key belongs to."""
        request = tenant_pb2.GetTenantRequest(tenant_id=tenant_id or "")
        stub = self._tenants().GetTenant
        response = await self._connection.call(f"{_TENANT}/GetTenant", stub, request)
        return records.TenantUsage(convert.tenant_from_proto(response.tenant), response.num_facts)

    async def set_quotas(self, tenant_id: str, quotas: records.Quotas) -> records.Tenant:
        """Replaces both. Lower ones delete nothing."""
        request = tenant_pb2.SetQuotasRequest(
            tenant_id=tenant_id, quotas=convert.quotas_to_proto(quotas)
        )
        stub = self._tenants().SetQuotas
        response = await self._connection.call(f"{_TENANT}/SetQuotas", stub, request)
        return convert.tenant_from_proto(response.tenant)

    async def create_api_key(
        self, label: str, *, tenant_id: str | None = None
    ) -> records.CreatedApiKey:
        """The secret is in the answer only. tenant_id: for the operator."""
        request = tenant_pb2.CreateApiKeyRequest(label=label, tenant_id=tenant_id or "")
        stub = self._tenants().CreateApiKey
        response = await self._connection.call(
            f"{_TENANT}/CreateApiKey", stub, request, repeatable=False
        )
        return records.CreatedApiKey(convert.api_key_from_proto(response.key), response.secret)

    async def list_api_keys(self, *, tenant_id: str | None = None) -> tuple[records.ApiKey, ...]:
        """Revoked ones too, oldest first. tenant_id: for the operator."""
        request = tenant_pb2.ListApiKeysRequest(tenant_id=tenant_id or "")
        stub = self._tenants().ListApiKeys
        response = await self._connection.call(f"{_TENANT}/ListApiKeys", stub, request)
        return tuple(convert.api_key_from_proto(key) for key in response.keys)

    async def revoke_api_key(self, key_id: str, *, tenant_id: str | None = None) -> records.ApiKey:
        """It is refused from now on. Revoking it again changes nothing."""
        request = tenant_pb2.RevokeApiKeyRequest(key_id=key_id, tenant_id=tenant_id or "")
        stub = self._tenants().RevokeApiKey
        response = await self._connection.call(f"{_TENANT}/RevokeApiKey", stub, request)
        return convert.api_key_from_proto(response.key)

    async def remove_worker(self, worker_id: str) -> None:
        """Forget a worker that will never come back, and end what deletions wait for from it."""
        request = sync_pb2.RemoveWorkerRequest(worker_id=worker_id)
        stub = self._connection.stub(SyncServiceStub).RemoveWorker
        await self._connection.call(f"{_SYNC}/RemoveWorker", stub, request, repeatable=False)

    def _tenants(self) -> TenantServiceStub:
        return self._connection.stub(TenantServiceStub)
