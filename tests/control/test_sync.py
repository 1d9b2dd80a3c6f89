"""What workers ask of control."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio
import numpy as np
import pytest

from inferscale_core.client import NewMemory, Turn
from inferscale_core.ids import UserId
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import SyncServiceStub
from inferscale_core.store import DiskKeyRepository
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


async def test_a_disk_key_comes_on_the_last_page_to_a_worker_that_asks_for_it(
    tenant: Tenant, sync: SyncServiceStub
) -> None:
    items = [NewMemory(f"Fact number {n}.") for n in range(600)]
    for start in (0, 300):
        await tenant.client.batch_add_memories("mira", items[start : start + 300])
    assert not any(page.HasField("disk_key") for page in await _changes(sync, tenant, 0))
    first, last = await _changes(sync, tenant, 0, with_disk_key=True)
    assert not first.HasField("disk_key")
    assert (last.disk_key.kv_epoch, len(last.disk_key.secret)) == (0, 32)
    [again] = await _changes(sync, tenant, 600, with_disk_key=True)
    assert again.disk_key == last.disk_key


async def test_a_delete_gives_the_user_another_disk_key(
    tenant: Tenant, sync: SyncServiceStub
) -> None:
    one = await tenant.client.add_memory("mira", "One.")
    [before] = await _changes(sync, tenant, 0, with_disk_key=True)
    await tenant.client.delete_memory("mira", one.memory.memory_id)
    [after] = await _changes(sync, tenant, 0, with_disk_key=True)
    assert (before.disk_key.kv_epoch, after.disk_key.kv_epoch) == (0, 1)
    assert before.disk_key.secret != after.disk_key.secret


async def test_a_user_whom_nobody_has_written_gets_no_disk_key(
    tenant: Tenant, sync: SyncServiceStub
) -> None:
    [page] = await _changes(sync, tenant, 0, with_disk_key=True)
    assert not page.HasField("disk_key")


async def test_a_key_is_never_handed_out_with_facts_of_an_earlier_epoch(
    tenant: Tenant, sync: SyncServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delete comes between reading the last page and reading the key."""
    one = await tenant.client.add_memory("mira", "One.")
    two = await tenant.client.add_memory("mira", "Two.")
    current = DiskKeyRepository.current
    told = [one.memory.memory_id]

    async def overtaken(keys: DiskKeyRepository, user_id: UserId) -> DiskKey | None:
        if told:
            await tenant.client.delete_memory("mira", told.pop())
        return await current(keys, user_id)

    monkeypatch.setattr(DiskKeyRepository, "current", overtaken)
    pages = await _changes(sync, tenant, 0, with_disk_key=True)
    assert [page.last for page in pages] == [False, True]
    assert [page.kv_epoch for page in pages] == [0, 1]
    assert not pages[0].HasField("disk_key")
    assert pages[1].disk_key.kv_epoch == 1
    assert list(pages[1].removed_fact_ids) == [one.memory.memory_id]
    assert [fact.fact_id for fact in pages[0].facts] == [
        one.memory.memory_id,
        two.memory.memory_id,
    ]


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
    sync: SyncServiceStub, tenant: Tenant, after_version: int, *, with_disk_key: bool = False
) -> list[sync_pb2.ListChangesResponse]:
    request = sync_pb2.ListChangesRequest(
        tenant_id=tenant.tenant_id,
        user_id="mira",
        after_version=after_version,
        with_disk_key=with_disk_key,
    )
    return [page async for page in sync.ListChanges(request)]


async def test_a_second_process_under_a_live_workers_id_never_takes_its_place(
    control: Control, tenant: Tenant
) -> None:
    first = await control.worker(tenant.model, "doubled")
    second = await control.worker(tenant.model, "doubled", join=False)
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await second.join()
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert f"belongs to the instance at {first.address}" in str(refused.value.details())
        await first.join(renewal=True)
    await tenant.client.add_memory("mira", "Mira has a dog.")
    answer = await tenant.client.chat("mira", "Any pets?").answer()
    assert answer.text == "Mira has a dog.\n"
    assert len(first.generate_requests) == 1

    await first.join(renewal=True, draining=True)
    await second.join()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await first.join(renewal=True)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await tenant.client.chat("mira", "Any pets?").answer()
    assert len(second.generate_requests) == 1
