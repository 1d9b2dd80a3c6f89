"""SyncService over gRPC. Callers are workers with the internal token, so requests name tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc.aio

from inferscale_core.ids import TenantId, WorkerId
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2 as pb
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import SyncServiceServicer
from services.control.memory.convert import user_from_proto
from services.control.sync import convert
from services.control.sync.use_cases import SyncUseCases
from services.control.validation import check_identifier, check_tenant_id

_Context = grpc.aio.ServicerContext[Any, Any]


class SyncServicer(SyncServiceServicer):
    def __init__(self, sync: SyncUseCases, *, lease_s: int) -> None:
        self._sync = sync
        self._lease_s = lease_s

    async def ListChanges(
        self, request: pb.ListChangesRequest, context: _Context
    ) -> AsyncIterator[pb.ListChangesResponse]:
        tenant_id = TenantId(check_tenant_id("tenant_id", request.tenant_id))
        user_id = user_from_proto(request.user_id)
        changes = self._sync.changes(
            tenant_id, user_id, request.after_version, with_disk_key=request.with_disk_key
        )
        async with aclosing(changes) as pages:
            async for page in pages:
                yield convert.page_to_proto(page)

    async def JoinWorker(
        self, request: pb.JoinWorkerRequest, context: _Context
    ) -> pb.JoinWorkerResponse:
        await self._sync.join(convert.worker_from_proto(request), renewal=request.renewal)
        return pb.JoinWorkerResponse(lease_s=self._lease_s)

    async def RemoveWorker(
        self, request: pb.RemoveWorkerRequest, context: _Context
    ) -> pb.RemoveWorkerResponse:
        await self._sync.remove(WorkerId(check_identifier("worker_id", request.worker_id)))
        return pb.RemoveWorkerResponse()
