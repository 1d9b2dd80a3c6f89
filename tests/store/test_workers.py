"""Workers, what they hold, and what receipts still want of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from inferscale_core.errors import NotFound
from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.deletion import WORKER_HOLDERS, DeletionReceipt, Holder, PurgeState
from inferscale_core.store import Store
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, a_worker, add_fact

ZERO, ONE = WorkerId("worker-0"), WorkerId("worker-1")


@pytest.fixture
async def store(database_factory: Callable[..., Database]) -> AsyncIterator[Store]:
    """A database of its own: the registry is not a tenant's."""
    store = database_factory().store()
    yield store
    await store.close()


async def _join(store: Store, worker_id: str, instance_id: str = "i1") -> bool:
    async with store.system() as system:
        return await system.workers.join(a_worker(worker_id, instance_id=instance_id))


async def _delete_held_fact(
    store: Store, *holders: WorkerId
) -> tuple[TenantId, UserId, DeletionReceipt]:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        for worker_id in holders:
            await tx.holders.add(user, worker_id)
    async with store.transaction(tenant) as tx:
        deleted = await tx.facts.delete(user, fact.fact_id)
    return tenant, user, deleted.receipt


async def _pending(
    store: Store, tenant: TenantId, user: UserId, receipt: DeletionReceipt
) -> dict[WorkerId | None, set[Holder]]:
    async with store.transaction(tenant) as tx:
        lines = (await tx.deletions.get(user, receipt.receipt_id)).lines
    found: dict[WorkerId | None, set[Holder]] = {}
    for line in lines:
        if line.state == PurgeState.PENDING:
            found.setdefault(line.worker_id, set()).add(line.holder)
    return found


async def test_a_worker_is_live_for_its_lease_and_new_once_per_instance(store: Store) -> None:
    assert await _join(store, ZERO)
    assert not await _join(store, ZERO)
    assert await _join(store, ZERO, "i2")
    async with store.system() as system:
        assert await system.workers.live(60) == [a_worker(ZERO, instance_id="i2")]
        assert await system.workers.live(60, "another-model") == []
        assert await system.workers.live(-60) == []
        await system.workers.join(replace(a_worker(ZERO, instance_id="i2"), draining=True))
        assert (await system.workers.get(ZERO)).draining
        with pytest.raises(NotFound):
            await system.workers.get(ONE)


async def test_a_receipt_waits_for_every_worker_that_has_held_the_user(store: Store) -> None:
    tenant, user, receipt = await _delete_held_fact(store, ZERO, ONE)
    everything = set(WORKER_HOLDERS)
    assert await _pending(store, tenant, user, receipt) == {ZERO: everything, ONE: everything}
    async with store.transaction(tenant) as tx:
        await tx.deletions.acknowledge(
            receipt.receipt_id, ZERO, {Holder.ARENA: 3, Holder.USER_CACHE: 1}, pending=[Holder.HOST]
        )
    assert await _pending(store, tenant, user, receipt) == {ZERO: {Holder.HOST}, ONE: everything}
    async with store.transaction(tenant) as tx:
        lines = (await tx.deletions.get(user, receipt.receipt_id)).lines
    counts = {line.holder: line.count for line in lines if line.worker_id == ZERO}
    assert counts == {Holder.ARENA: 3, Holder.USER_CACHE: 1, Holder.HOST: 0, Holder.DISK: 0}


async def test_a_worker_that_starts_again_or_is_removed_ends_its_pending_lines(
    store: Store,
) -> None:
    await _join(store, ZERO)
    await _join(store, ONE)
    tenant, user, receipt = await _delete_held_fact(store, ZERO, ONE)
    await _join(store, ZERO)
    assert set(await _pending(store, tenant, user, receipt)) == {ZERO, ONE}
    await _join(store, ZERO, "i2")
    assert set(await _pending(store, tenant, user, receipt)) == {ONE}
    async with store.transaction(tenant) as tx:
        assert await tx.holders.list(user) == [ONE]
    async with store.system() as system:
        await system.workers.remove(ONE)
    assert await _pending(store, tenant, user, receipt) == {}
    with pytest.raises(NotFound):
        async with store.system() as system:
            await system.workers.remove(ONE)


async def test_a_receipt_is_read_by_its_own_user_alone(store: Store) -> None:
    tenant, user, receipt = await _delete_held_fact(store)
    other_tenant = await a_tenant(store)
    for tenant_id, user_id in ((tenant, a_user()), (other_tenant, user)):
        async with store.transaction(tenant_id) as tx:
            with pytest.raises(NotFound):
                await tx.deletions.get(user_id, receipt.receipt_id)


async def test_users_of_a_model_come_in_pages_over_all_tenants(store: Store) -> None:
    expected = []
    for models in (("tiny",), ("large",), ("large", "tiny")):
        tenant = await a_tenant(store, models=models)
        for _ in range(2):
            user = a_user()
            await add_fact(store, tenant, user, "Robin has a dog.")
            if "tiny" in models:
                expected.append((tenant, user))
        async with store.transaction(tenant) as tx:
            fact = await tx.facts.page(user, limit=1)
            empty = a_user()
            await tx.users.lock(empty)
            assert fact
    found: list[tuple[TenantId, UserId]] = []
    async with store.system() as system:
        while page := await system.workers.users_of_model(
            "tiny", after=found[-1] if found else None, limit=3
        ):
            found += page
    assert found == sorted(expected)
