from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from inferscale_core.errors import PermissionDenied, Unauthenticated
from inferscale_core.rpc.auth import SharedTokens, check_allowed, credential_from
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.identity import InternalPrincipal, OperatorPrincipal
from inferscale_core.rpc.pb.inferscale.v1 import (
    chat_pb2,
    chat_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    sync_pb2,
    sync_pb2_grpc,
    tenant_pb2,
    tenant_pb2_grpc,
    worker_pb2,
)
from tests.rpc.conftest import Served
from tests.rpc.fakes import INTERNAL_TOKEN, OPERATOR_TOKEN
from tests.telemetry_capture import Capture

METHODS = [
    f"{service.full_name}/{method.name}"
    for file in (memory_pb2, chat_pb2, tenant_pb2, sync_pb2, worker_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@pytest.fixture
async def bare(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    """A channel that sends no credential of its own."""
    async with grpc.aio.insecure_channel(served.address) as channel:
        yield channel


async def _get(channel: grpc.aio.Channel, *metadata: tuple[str, str]) -> memory_pb2.Memory:
    stub = memory_pb2_grpc.MemoryServiceStub(channel)
    response = await stub.GetMemory(memory_pb2.GetMemoryRequest(memory_id="m"), metadata=metadata)
    return response.memory


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Bearer "),),
        (("authorization", "Basic key-of-acme"),),
        (("authorization", "key-of-acme"),),
        (("authorization", "Bearer key-of-acme"), ("authorization", "Bearer key-of-globex")),
    ],
)
async def test_a_missing_or_wrong_credential_is_unauthenticated(
    bare: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await _get(bare, *metadata)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_stream_without_credential_never_reaches_the_servicer(
    served: Served, bare: grpc.aio.Channel
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await anext(chat_pb2_grpc.ChatServiceStub(bare).Chat(chat_pb2.ChatRequest()).__aiter__())
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert served.chat.num_started == 0


async def test_the_tenant_is_the_credentials_in_every_one_of_many_concurrent_calls(
    served: Served, bare: grpc.aio.Channel
) -> None:
    async def pause() -> None:
        await asyncio.sleep(0.01)

    served.memory.before = pause
    tenants = ["acme", "globex"] * 20
    memories = await asyncio.gather(
        *(_get(bare, ("authorization", f"Bearer key-of-{tenant}")) for tenant in tenants)
    )
    assert [memory.user_id for memory in memories] == tenants


async def test_a_stream_knows_its_tenant(served: Served, channel: grpc.aio.Channel) -> None:
    first = await anext(
        chat_pb2_grpc.ChatServiceStub(channel).Chat(chat_pb2.ChatRequest()).__aiter__()
    )
    assert first.retrieved.worker_id == "acme"


@pytest.mark.parametrize("credential", [OPERATOR_TOKEN, INTERNAL_TOKEN])
async def test_only_a_tenants_key_reads_memories(served: Served, credential: str) -> None:
    async with open_channel(served.address, credential) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await _get(channel)
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("credential", ["key-of-acme", OPERATOR_TOKEN])
async def test_only_the_internal_token_joins_workers(served: Served, credential: str) -> None:
    async with open_channel(served.address, credential) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await sync_pb2_grpc.SyncServiceStub(channel).JoinWorker(sync_pb2.JoinWorkerRequest())
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
    async with open_channel(served.address, INTERNAL_TOKEN) as channel:
        stub = sync_pb2_grpc.SyncServiceStub(channel)
        assert (await stub.JoinWorker(sync_pb2.JoinWorkerRequest())).lease_s == 15


@pytest.mark.parametrize("credential", ["key-of-acme", INTERNAL_TOKEN])
async def test_only_the_operator_creates_tenants(served: Served, credential: str) -> None:
    request = tenant_pb2.CreateTenantRequest(tenant_id="acme")
    async with open_channel(served.address, credential) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await tenant_pb2_grpc.TenantServiceStub(channel).CreateTenant(request)
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_rule_about_who_may_call_it(method: str) -> None:
    from inferscale_core.ids import TenantId
    from inferscale_core.rpc.identity import TenantPrincipal

    callers = (OperatorPrincipal(), InternalPrincipal(), TenantPrincipal(TenantId("t"), "k"))
    refused = []
    for caller in callers:
        try:
            check_allowed(caller, method)
        except PermissionDenied:
            refused.append(caller)
    assert 0 < len(refused) < len(callers)


def test_a_method_without_a_rule_is_nobodys() -> None:
    with pytest.raises(PermissionDenied):
        check_allowed(OperatorPrincipal(), "inferscale.v1.NewService/Do")


def test_an_empty_token_lets_nobody_in() -> None:
    assert SharedTokens(internal="", operator="").principal_of("") is None
    assert SharedTokens(internal="token").principal_of("") is None


def test_the_two_tokens_are_told_apart() -> None:
    tokens = SharedTokens(internal="one", operator="other")
    assert tokens.principal_of("one") == InternalPrincipal()
    assert tokens.principal_of("other") == OperatorPrincipal()
    assert tokens.principal_of("onf") is None
    assert tokens.principal_of("schlüssel") is None


def test_a_binary_credential_is_refused() -> None:
    with pytest.raises(Unauthenticated):
        credential_from([("authorization", b"Bearer x")])


async def test_log_lines_of_a_call_name_its_tenant_and_trace(
    served: Served, channel: grpc.aio.Channel, telemetry: Capture
) -> None:
    async def fail() -> None:
        raise PermissionDenied("no")

    served.memory.before = fail
    with pytest.raises(grpc.aio.AioRpcError):
        await memory_pb2_grpc.MemoryServiceStub(channel).GetMemory(memory_pb2.GetMemoryRequest())
    (line,) = [line for line in telemetry.lines() if "rpc.failed" in line]
    (span,) = await telemetry.all_spans("inferscale.v1.MemoryService/GetMemory", 1)
    assert "tenant_id=acme" in line
    assert f"trace_id={span.context.trace_id:032x}" in line
    assert span.attributes["inferscale.tenant.id"] == "acme"
