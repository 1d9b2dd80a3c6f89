"""Small services over the real protocol: what they answer, a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from inferscale_core.errors import Unauthenticated
from inferscale_core.ids import TenantId
from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.identity import Principal, TenantPrincipal, current_tenant
from inferscale_core.rpc.pb.inferscale.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    sync_pb2,
    sync_pb2_grpc,
    tenant_pb2,
    tenant_pb2_grpc,
)

KEYS = {"key-of-acme": "acme", "key-of-globex": "globex"}
OPERATOR_TOKEN = "operator-token"
INTERNAL_TOKEN = "internal-token"


class FakeAuthenticator:
    def __init__(self) -> None:
        self._tokens = SharedTokens(internal=INTERNAL_TOKEN, operator=OPERATOR_TOKEN)

    async def authenticate(self, credential: str) -> Principal:
        principal = self._tokens.principal_of(credential)
        if principal is None and credential in KEYS:
            principal = TenantPrincipal(TenantId(KEYS[credential]), credential)
        if principal is None:
            raise Unauthenticated("the credential is not valid")
        return principal


class FakeMemoryService(memory_pb2_grpc.MemoryServiceServicer):
    """`before` runs first in AddMemory and GetMemory: it may wait or raise."""

    def __init__(self) -> None:
        self.before: Callable[[], Awaitable[None]] | None = None
        self.added: list[tuple[str, memory_pb2.AddMemoryRequest]] = []

    async def AddMemory(
        self, request: memory_pb2.AddMemoryRequest, context: Any
    ) -> memory_pb2.AddMemoryResponse:
        self.added.append((current_tenant(), request))
        await self._run_before()
        memory = memory_pb2.Memory(
            memory_id="m-1", user_id=request.user_id, text=request.memory.text, revision=1
        )
        return memory_pb2.AddMemoryResponse(memory=memory, memory_version=1)

    async def GetMemory(
        self, request: memory_pb2.GetMemoryRequest, context: Any
    ) -> memory_pb2.GetMemoryResponse:
        await self._run_before()
        memory = memory_pb2.Memory(memory_id=request.memory_id, user_id=current_tenant())
        return memory_pb2.GetMemoryResponse(memory=memory)

    async def _run_before(self) -> None:
        if self.before:
            await self.before()


class FakeChatService(chat_pb2_grpc.ChatServiceServicer):
    """Streams `retrieved`, then deltas until `num_deltas` are sent, pausing between two."""

    def __init__(self) -> None:
        self.num_deltas = 3
        self.pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
        self.before: Callable[[], Awaitable[None]] | None = None
        self.num_started = 0
        self.num_deltas_sent = 0
        self.closed = asyncio.Event()

    async def Chat(
        self, request: chat_pb2.ChatRequest, context: Any
    ) -> AsyncIterator[chat_pb2.ChatResponse]:
        self.num_started += 1
        try:
            if self.before:
                await self.before()
            yield chat_pb2.ChatResponse(retrieved=chat_pb2.Retrieved(worker_id=current_tenant()))
            for number in range(self.num_deltas):
                await self.pause()
                self.num_deltas_sent += 1
                yield chat_pb2.ChatResponse(delta=chat_pb2.Delta(text=f"piece-{number} "))
            yield chat_pb2.ChatResponse(done=chat_pb2.Done(finish_reason="stop"))
        finally:
            self.closed.set()


class FakeSyncService(sync_pb2_grpc.SyncServiceServicer):
    async def JoinWorker(
        self, request: sync_pb2.JoinWorkerRequest, context: Any
    ) -> sync_pb2.JoinWorkerResponse:
        return sync_pb2.JoinWorkerResponse(lease_s=15)


class FakeTenantService(tenant_pb2_grpc.TenantServiceServicer):
    async def CreateTenant(
        self, request: tenant_pb2.CreateTenantRequest, context: Any
    ) -> tenant_pb2.CreateTenantResponse:
        tenant = tenant_pb2.Tenant(tenant_id=request.tenant_id, models=request.models)
        return tenant_pb2.CreateTenantResponse(tenant=tenant, api_key="secret", key_id="k-1")
