"""The blocking client of the operator: what `AsyncOperator` does, without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from inferscale_core.client import records
from inferscale_core.client.connection import ClientOptions
from inferscale_core.client.loop_thread import LoopThread
from inferscale_core.client.operator_client import AsyncOperator


class Operator:
    """See `AsyncOperator` for what each method means. Safe to share between threads."""

    def __init__(self, target: str, credential: str, options: ClientOptions | None = None) -> None:
        """credential: the operator's token, or a tenant's key."""
        self._thread = LoopThread()
        self._client = AsyncOperator(target, credential, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._thread.run(self._client.close())
        self._thread.stop()

    def create_tenant(
        self,
        tenant_id: str,
        models: Sequence[str],
        *,
        display_name: str = "",
        quotas: records.Quotas | None = None,
    ) -> records.CreatedTenant:
        return self._thread.run(
            self._client.create_tenant(tenant_id, models, display_name=display_name, quotas=quotas)
        )

    def get_tenant(self, tenant_id: str | None = None) -> records.TenantUsage:
        return self._thread.run(self._client.get_tenant(tenant_id))

    def set_quotas(self, tenant_id: str, quotas: records.Quotas) -> records.Tenant:
        return self._thread.run(self._client.set_quotas(tenant_id, quotas))

    def create_api_key(self, label: str, *, tenant_id: str | None = None) -> records.CreatedApiKey:
        return self._thread.run(self._client.create_api_key(label, tenant_id=tenant_id))

    def list_api_keys(self, *, tenant_id: str | None = None) -> tuple[records.ApiKey, ...]:
        return self._thread.run(self._client.list_api_keys(tenant_id=tenant_id))

    def revoke_api_key(self, key_id: str, *, tenant_id: str | None = None) -> records.ApiKey:
        return self._thread.run(self._client.revoke_api_key(key_id, tenant_id=tenant_id))

    def remove_worker(self, worker_id: str) -> None:
        self._thread.run(self._client.remove_worker(worker_id))
