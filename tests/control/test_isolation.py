"""Every RPC of a tenant tried by another, on users, facts and receipts of the same names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from inferscale_core.client import AsyncInferScale, NewMemory, Turn
from inferscale_core.client.records import DeletionReceipt, Memory
from inferscale_core.errors import NotFound
from inferscale_core.rpc.pb.inferscale.v1 import memory_pb2
from tests.control.harness import Control, Tenant

USER = "mira"


class Owned:
    """What the first tenant has, and what must be left of it."""

    def __init__(self, tenant: Tenant, fact: Memory, receipt: DeletionReceipt) -> None:
        self.tenant = tenant
        self.fact = fact
        self.receipt = receipt


@pytest.fixture
async def owned(control: Control, tenant: Tenant) -> Owned:
    await control.worker(tenant.model)
    await tenant.client.append_turns(USER, "talk", [Turn("Mira", "Hi.", turn_id="t1")])
    gone = await tenant.client.add_memory(USER, "A secret that was deleted.", request_id="r0")
    deleted = await tenant.client.delete_memory(USER, gone.memory.memory_id)
    added = await tenant.client.add_memory(USER, "A secret.", request_id="r1")
    fact = await tenant.encoded(USER, added.memory.memory_id)
    return Owned(tenant, fact, deleted.receipt)


Attempt = Callable[[AsyncInferScale, Owned], Awaitable[object]]

NOT_FOUND: dict[str, Attempt] = {
    "GetMemory": lambda c, o: c.get_memory(USER, o.fact.memory_id),
    "UpdateMemory": lambda c, o: c.update_memory(USER, o.fact.memory_id, "Mine."),
    "DeleteMemory": lambda c, o: c.delete_memory(USER, o.fact.memory_id),
    "GetDeletionReceipt": lambda c, o: c.get_deletion_receipt(USER, o.receipt.receipt_id),
    "DeleteTurns": lambda c, o: c.delete_turns(USER, "talk", ["t1"]),
}
OWN_WORLD: dict[str, Attempt] = {
    "AddMemory": lambda c, o: c.add_memory(USER, "A secret.", request_id="r1"),
    "BatchAddMemories": lambda c, o: c.batch_add_memories(
        USER, [NewMemory("A secret.")], request_id="r0"
    ),
    "AppendTurns": lambda c, o: c.append_turns(USER, "talk", [Turn("M", "Hi.", turn_id="t1")]),
}
EMPTY: dict[str, Attempt] = {
    "ListMemories": lambda c, o: c.list_memories(USER),
    "SearchMemories": lambda c, o: c.search_memories(USER, "A secret."),
}


def test_no_rpc_of_the_service_is_left_out() -> None:
    methods = memory_pb2.DESCRIPTOR.services_by_name["MemoryService"].methods
    assert {method.name for method in methods} == {*NOT_FOUND, *OWN_WORLD, *EMPTY}


@pytest.mark.parametrize("name", NOT_FOUND)
async def test_what_another_tenant_owns_does_not_exist(
    control: Control, owned: Owned, name: str
) -> None:
    stranger = await control.tenant(models=[owned.tenant.model])
    with pytest.raises(NotFound):
        await NOT_FOUND[name](stranger.client, owned)
    await _assert_untouched(owned)


@pytest.mark.parametrize("name", OWN_WORLD)
async def test_the_same_names_mean_other_things_to_another_tenant(
    control: Control, owned: Owned, name: str
) -> None:
    stranger = await control.tenant(models=[owned.tenant.model])
    answer = await OWN_WORLD[name](stranger.client, owned)
    assert answer.memory_version == 1  # type: ignore[attr-defined]
    await _assert_untouched(owned)


@pytest.mark.parametrize("name", EMPTY)
async def test_nothing_of_another_tenant_is_listed_or_found(
    control: Control, owned: Owned, name: str
) -> None:
    stranger = await control.tenant(models=[owned.tenant.model])
    answer = await EMPTY[name](stranger.client, owned)
    assert answer.memories == ()  # type: ignore[attr-defined]


async def test_a_chat_about_the_same_user_id_knows_nothing_of_another_tenants(
    control: Control, owned: Owned
) -> None:
    stranger = await control.tenant(models=[owned.tenant.model])
    assert (await owned.tenant.client.chat(USER, "Secrets?").answer()).text == "A secret.\n"
    assert (await stranger.client.chat(USER, "Secrets?").answer()).text == ""


@pytest.mark.parametrize("forged", ["{tenant}/mira", "../{tenant}/mira", "mira\u200b", "MIRA"])
async def test_a_forged_user_id_is_just_another_user(
    control: Control, owned: Owned, forged: str
) -> None:
    stranger = await control.tenant(models=[owned.tenant.model])
    user_id = forged.format(tenant=owned.tenant.tenant_id)
    assert (await stranger.client.chat(user_id, "Secrets?").answer()).text == ""
    assert (await stranger.client.list_memories(user_id)).memories == ()


async def _assert_untouched(owned: Owned) -> None:
    client = owned.tenant.client
    assert (await client.list_memories(USER)).memories[0].text == "A secret."
    memory = await client.get_memory(USER, owned.fact.memory_id)
    assert (memory.revision, memory.is_encoded) == (1, True)
    assert await client.get_deletion_receipt(USER, owned.receipt.receipt_id) == owned.receipt
