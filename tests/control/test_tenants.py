"""Tenants, keys, quotas, and who may call what."""

from __future__ import annotations

import itertools
from typing import Any

import grpc.aio
import pytest
from google.protobuf import message_factory

from inferscale_core.client import AsyncOperator, Quotas
from inferscale_core.errors import InvalidInput, NotFound, PermissionDenied, Unauthenticated
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, memory_pb2, sync_pb2, tenant_pb2
from tests.control.harness import INTERNAL_TOKEN, NO_RETRY, OPERATOR_TOKEN, Control, Tenant
from tests.fixtures_postgres import Database

METHODS = [
    (service, method)
    for file in (memory_pb2, chat_pb2, tenant_pb2, sync_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
ALLOWED = {
    "MemoryService": {"tenant"},
    "ChatService": {"tenant"},
    "TenantService": {"tenant", "operator"},
    "SyncService": {"internal"},
    "CreateTenant": {"operator"},
    "SetQuotas": {"operator"},
    "RemoveWorker": {"operator"},
}
_numbers = itertools.count(1)


async def test_a_tenant_is_created_with_a_key_that_works(control: Control) -> None:
    created = await control.operator.create_tenant(
        "acme-1", ["small", "large"], display_name="Acme", quotas=Quotas(10, 5)
    )
    assert created.api_key.startswith("isk_")
    usage = await AsyncOperator(control.address, created.api_key, NO_RETRY).get_tenant()
    assert usage.tenant == created.tenant
    assert (usage.tenant.models, usage.tenant.quotas) == (("small", "large"), Quotas(10, 5))
    assert usage.num_facts == 0


async def test_quotas_that_are_not_given_take_their_defaults(control: Control) -> None:
    tenant = await control.tenant()
    usage = await control.operator.get_tenant(tenant.tenant_id)
    assert usage.tenant.quotas == Quotas(1_000_000, 10_000)


async def test_a_tenant_is_not_created_twice(control: Control, tenant: Tenant) -> None:
    with pytest.raises(InvalidInput, match="exists already"):
        await control.operator.create_tenant(tenant.tenant_id, ["small"])


@pytest.mark.parametrize(
    "tenant_id", ["", "ab", "Acme", "a_b_c", "-acme", "acme-", "a" * 64, "á-b", "acme\n"]
)
async def test_a_tenant_id_that_is_no_label_is_refused(control: Control, tenant_id: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await control.operator.create_tenant(tenant_id, ["small"])
    assert refused.value.field == "tenant_id"


@pytest.mark.parametrize("models", [[], ["small", "small"], [""], [f"m{n}" for n in range(17)]])
async def test_a_tenant_needs_models_with_different_names(
    control: Control, models: list[str]
) -> None:
    with pytest.raises(InvalidInput, match="models"):
        await control.operator.create_tenant(f"models-{next(_numbers)}", models)


async def test_a_lowered_quota_keeps_what_is_stored(control: Control, tenant: Tenant) -> None:
    for text in ("One.", "Two."):
        await tenant.client.add_memory("mira", text)
    changed = await control.operator.set_quotas(tenant.tenant_id, Quotas(1, 1))
    assert changed.quotas == Quotas(1, 1)
    usage = await control.operator.get_tenant(tenant.tenant_id)
    assert usage.num_facts == 2


async def test_a_secret_is_stored_as_a_hash_alone(tenant: Tenant, database: Database) -> None:
    with database.admin() as connection:
        rows = connection.execute("SELECT to_jsonb(api_keys)::text FROM api_keys").fetchall()
    assert tenant.key_id in str(rows)
    assert tenant.api_key not in str(rows)
    assert tenant.api_key.removeprefix("isk_") not in str(rows)


async def test_a_revoked_key_ends_at_once_and_the_other_goes_on(
    control: Control, tenant: Tenant
) -> None:
    own = AsyncOperator(control.address, tenant.api_key, NO_RETRY)
    second = await own.create_api_key("second")
    revoked = await own.revoke_api_key(tenant.key_id)
    assert revoked.revoked_at is not None
    with pytest.raises(Unauthenticated):
        await tenant.client.list_memories("mira")
    client = control.client(second.secret)
    await client.list_memories("mira")
    keys = await control.operator.list_api_keys(tenant_id=tenant.tenant_id)
    assert [(key.label, key.revoked_at is None) for key in keys] == [
        ("first key", False),
        ("second", True),
    ]
    await own.close()


async def test_a_tenant_may_neither_see_nor_touch_anothers_keys(
    control: Control, tenant: Tenant
) -> None:
    other = await control.tenant()
    own = AsyncOperator(control.address, tenant.api_key, NO_RETRY)
    for attempt in (
        own.get_tenant(other.tenant_id),
        own.list_api_keys(tenant_id=other.tenant_id),
        own.create_api_key("mine now", tenant_id=other.tenant_id),
        own.revoke_api_key(other.key_id, tenant_id=other.tenant_id),
    ):
        with pytest.raises(PermissionDenied):
            await attempt
    with pytest.raises(NotFound):
        await own.revoke_api_key(other.key_id)
    await other.client.list_memories("mira")
    assert len(await control.operator.list_api_keys(tenant_id=other.tenant_id)) == 1
    await own.close()


async def test_the_operator_names_a_tenant_that_exists(control: Control) -> None:
    with pytest.raises(InvalidInput, match="must name a tenant"):
        await control.operator.get_tenant()
    for attempt in (
        control.operator.get_tenant("no-such"),
        control.operator.list_api_keys(tenant_id="no-such"),
        control.operator.create_api_key("x", tenant_id="no-such"),
        control.operator.set_quotas("no-such", Quotas(1, 1)),
    ):
        with pytest.raises(NotFound):
            await attempt


@pytest.mark.parametrize(("service", "method"), METHODS, ids=lambda part: part.name)
async def test_each_call_takes_the_credentials_that_it_is_for_and_no_other(
    control: Control, tenant: Tenant, service: Any, method: Any
) -> None:
    allowed = ALLOWED.get(method.name, ALLOWED.get(service.name))
    credentials = {
        "tenant": tenant.api_key,
        "operator": OPERATOR_TOKEN,
        "internal": INTERNAL_TOKEN,
        "unknown key": "isk_" + "A" * 43,
        "cut key": tenant.api_key[:-1],
        "long key": tenant.api_key + "A" * 1_000,
        "nothing": "",
    }
    for name, credential in credentials.items():
        status = await _status(control, service, method, credential)
        if name in allowed:
            assert status not in (
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
            ), name
        elif name in ("tenant", "operator", "internal"):
            assert status is grpc.StatusCode.PERMISSION_DENIED, name
        else:
            assert status is grpc.StatusCode.UNAUTHENTICATED, name


async def _status(control: Control, service: Any, method: Any, credential: str) -> grpc.StatusCode:
    """Of a call with an empty request."""
    channel = open_channel(control.address, credential)
    request = message_factory.GetMessageClass(method.input_type)()
    path = f"/{service.full_name}/{method.name}"
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    call = make(path, type(request).SerializeToString, bytes)
    try:
        if method.server_streaming:
            async for _ in call(request, timeout=5):
                pass
        else:
            await call(request, timeout=5)
    except grpc.aio.AioRpcError as exc:
        return exc.code()
    finally:
        await channel.close(None)
    return grpc.StatusCode.OK
