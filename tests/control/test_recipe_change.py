"""From one recipe to the next while chats go on: the old one serves until the new one can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from inferscale_core.memory.recipes import DEFAULT_RECIPE, Storage
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2
from tests.control.fake_worker import FakeWorker
from tests.control.harness import Control, Tenant, eventually

PRESENT = DEFAULT_RECIPE.hash
"""Control was given this recipe; fake workers have another unless they are told."""


async def chat(tenant: Tenant, user_id: str = "mira") -> None:
    await tenant.client.chat(user_id, "Any pets?", k=3).answer()


def num_chats(*workers: FakeWorker) -> list[int]:
    return [len(worker.generate_requests) for worker in workers]


def held_back(worker: FakeWorker, gate: asyncio.Event) -> None:
    """Its encoding starts when the gate is open."""

    async def encode(request: worker_pb2.EncodeRequest) -> AsyncIterator[worker_pb2.EncodeResponse]:
        await gate.wait()
        async for result in worker.encode(request):
            yield result

    worker.on_encode = encode


async def encoded_on(worker: FakeWorker, count: int) -> None:
    async def has_all() -> bool:
        return sum(len(user.chunks) for user in worker.users.values()) == count

    await eventually(has_all)


async def test_a_user_is_served_with_the_old_recipe_until_the_new_one_has_every_chunk(
    control: Control, tenant: Tenant
) -> None:
    old = await control.worker(tenant.model)
    for text in ("Mira has a dog.", "Mira has a cat."):
        added = await tenant.client.add_memory("mira", text)
        await tenant.encoded("mira", added.memory.memory_id)
    await chat(tenant)

    gate = asyncio.Event()
    new = await control.worker(tenant.model, join=False, recipe_hash=PRESENT)
    held_back(new, gate)
    await new.join()
    await chat(tenant)
    await chat(tenant)
    assert num_chats(old, new) == [3, 0]

    gate.set()
    await encoded_on(new, 2)

    async def has_moved() -> bool:
        await chat(tenant)
        return num_chats(old, new)[1] > 0

    await eventually(has_moved)
    before = num_chats(old, new)
    await chat(tenant)
    assert num_chats(old, new) == [before[0], before[1] + 1]


async def test_a_fact_that_is_added_meanwhile_is_encoded_with_both(
    control: Control, tenant: Tenant
) -> None:
    old = await control.worker(tenant.model)
    new = await control.worker(tenant.model, recipe_hash=PRESENT)
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    memory = await tenant.encoded("mira", added.memory.memory_id)
    assert len(memory.encode_status) == 2
    await encoded_on(old, 1)
    await encoded_on(new, 1)


async def test_a_delete_meanwhile_reaches_both(control: Control, tenant: Tenant) -> None:
    old = await control.worker(tenant.model)
    new = await control.worker(tenant.model, recipe_hash=PRESENT)
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    await tenant.encoded("mira", added.memory.memory_id)
    await tenant.client.delete_memory("mira", added.memory.memory_id)
    assert [len(worker.forget_requests) for worker in (old, new)] == [1, 1]


async def test_a_user_who_was_never_told_to_encode_is_encoded_by_a_chat(
    control: Control, tenant: Tenant
) -> None:
    """A worker that joins takes up a hundred users by itself; others come as they chat."""
    old = await control.worker(tenant.model)
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    await tenant.encoded("mira", added.memory.memory_id)
    new = await control.worker(tenant.model, join=False, recipe_hash=PRESENT)
    refused = 0

    async def nothing(
        request: worker_pb2.EncodeRequest,
    ) -> AsyncIterator[worker_pb2.EncodeResponse]:
        nonlocal refused
        refused += 1
        for result in ():
            yield result

    new.on_encode = nothing
    await new.join()

    async def has_been_asked() -> bool:
        return refused > 0

    await eventually(has_been_asked)
    new.on_encode = new.encode
    await chat(tenant)
    assert num_chats(old, new) == [1, 0]
    await encoded_on(new, 1)


async def test_workers_that_differ_in_storage_alone_have_the_same_recipe(
    control: Control, tenant: Tenant
) -> None:
    one = await control.worker(tenant.model, recipe_hash=PRESENT)
    int8 = replace(DEFAULT_RECIPE, storage=Storage.INT8).hash
    other = await control.worker(tenant.model, recipe_hash=int8)
    for number in range(20):
        await chat(tenant, f"user-{number}")
    assert sum(num_chats(one, other)) == 20
    assert min(num_chats(one, other)) > 0, "users are shared out to both"


async def test_when_the_old_workers_are_gone_the_new_ones_serve_at_once(
    control: Control, tenant: Tenant
) -> None:
    old = await control.worker(tenant.model)
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    await tenant.encoded("mira", added.memory.memory_id)
    new = await control.worker(tenant.model, join=False, recipe_hash=PRESENT)
    held_back(new, asyncio.Event())
    await new.join()
    await old.join(draining=True)
    await chat(tenant)
    assert num_chats(old, new) == [0, 1]
