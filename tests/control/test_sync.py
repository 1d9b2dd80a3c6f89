"""What workers ask of control."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio
import numpy as np
import pytest

from inferscale_core.client import NewMemory, Turn
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import SyncServiceStub
from tests.control.harness import INTERNAL_TOKEN, Control, Tenant


@pytest.fixture
async def sync(control: Control) -> AsyncIterator[SyncServiceStub]:
    channel = open_channel(control.address, INTERNAL_TOKEN)
    yield SyncServiceStub(channel)
    await channel.close(None)


async def test_changes_come_in_pages_of_which_only_the_last_is_last(
    tenant: Tenant, sync: SyncServiceStub
) -> None:
    for start in range(0, 1_200, 400):
        items = [NewMemory(f"Fact number {n}.") for n in range(start, start + 400)]
        await tenant.client.batch_add_memories("mira", items)
    pages = await _changes(sync, tenant, 0)
    assert [page.last for page in pages] == [False, False, True]
    facts = [fact for page in pages for fact in page.facts]
    assert [fact.memory_version for fact in facts] == list(range(1, 1_201))
    assert [fact.text for fact in facts] == [f"Fact number {n}." for n in range(1_200)]
    vector = np.frombuffer(facts[7].embedding, dtype="<f4")
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


async def test_changes_after_a_version_are_what_came_since(
    tenant: Tenant, sync: SyncServiceStub
) -> None:
    one = await tenant.client.add_memory("mira", "One.")
    two = await tenant.client.add_memory("mira", "Two.")
    turns = await tenant.client.append_turns("mira", "talk", [Turn("Mira", "Hi.")])
    await tenant.client.update_memory("mira", one.memory.memory_id, "One, changed.")
    await tenant.client.delete_memory("mira", two.memory.memory_id)
    await tenant.client.delete_turns("mira", "talk")
    [page] = await _changes(sync, tenant, 2)
    assert [(fact.fact_id, fact.revision, fact.text) for fact in page.facts] == [
        (one.memory.memory_id, 2, "One, changed.")
    ]
    assert list(page.removed_fact_ids) == [two.memory.memory_id]
    assert list(page.removed_turn_ids) == list(turns.turn_ids)
    assert (page.memory_version, page.kv_epoch, page.last) == (6, 3, True)
    [nothing] = await _changes(sync, tenant, 6)
    assert (len(nothing.facts), nothing.memory_version, nothing.last) == (0, 6, True)


async def test_a_user_whom_nobody_has_written_is_one_empty_page(
    tenant: Tenant, sync: SyncServiceStub
) -> None:
    [page] = await _changes(sync, tenant, 0)
    assert (page.memory_version, page.kv_epoch, page.last, len(page.facts)) == (0, 0, True, 0)


async def test_a_worker_learns_its_lease_when_it_joins(control: Control, tenant: Tenant) -> None:
    worker = await control.worker(tenant.model, join=False)
    assert (await worker.join()).lease_s == control.settings.control.lease_s


@pytest.mark.parametrize(
    ("identity", "described"),
    [
        (("words", "1", 16), r"words revision 1 \(16 dimensions\)"),
        (("words", "2", 8), r"words revision 2 \(8 dimensions\)"),
        (("other", "1", 8), r"other revision 1 \(8 dimensions\)"),
        (("", "", 0), r" revision  \(0 dimensions\)"),
    ],
)
async def test_a_worker_with_another_embedder_is_refused_with_both(
    control: Control, tenant: Tenant, identity: tuple[str, str, int], described: str
) -> None:
    worker = await control.worker(tenant.model, join=False)
    embedder_id, revision, dimension = identity
    embedder = sync_pb2.EmbedderIdentity(
        embedder_id=embedder_id, revision=revision, dimension=dimension
    )
    with pytest.raises(grpc.aio.AioRpcError, match=described) as refused:
        await worker.join(embedder=embedder)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "words revision 1 (8 dimensions)" in str(refused.value.details())


@pytest.mark.parametrize(
    "field",
    ["worker_id", "instance_id", "address", "model", "model_revision", "recipe", "recipe_hash"],
)
async def test_a_worker_must_say_all_that_it_is(
    control: Control, tenant: Tenant, field: str
) -> None:
    worker = await control.worker(tenant.model, join=False)
    with pytest.raises(grpc.aio.AioRpcError, match=f"{field}: is empty"):
        await worker.join(**{field: ""})


async def _changes(
    sync: SyncServiceStub, tenant: Tenant, after_version: int
) -> list[sync_pb2.ListChangesResponse]:
    request = sync_pb2.ListChangesRequest(
        tenant_id=tenant.tenant_id, user_id="mira", after_version=after_version
    )
    return [page async for page in sync.ListChanges(request)]
