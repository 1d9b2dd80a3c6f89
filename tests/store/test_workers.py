"""Workers, what they hold, and what receipts still want of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from inferscale_core.errors import NotFound, WorkerIdTaken
from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.deletion import WORKER_HOLDERS, DeletionReceipt, Holder, PurgeState
from inferscale_core.memory.workers import Joined
from inferscale_core.store import Store
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, a_worker, add_fact

LEASE_S = 15.0
ZERO, ONE = WorkerId("worker-0"), WorkerId("worker-1")


@pytest.fixture
async def database(database_factory: Callable[..., Database]) -> Database:
    """One of its own: the registry is not a tenant's."""
    return database_factory()


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    store = database.store()
    yield store
    await store.close()


async def _join(
    store: Store,
    worker_id: str,
    instance_id: str = "i1",
    *,
    address: str = "127.0.0.1:7710",
    renewal: bool = False,
) -> Joined:
    async with store.system() as system:
        worker = replace(a_worker(worker_id, instance_id=instance_id), address=address)
        return await system.workers.join(worker, lease_s=LEASE_S, renewal=renewal)


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
    assert await _join(store, ZERO) is Joined.NEW
    assert await _join(store, ZERO) is Joined.RENEWED
    assert await _join(store, ZERO, "i2") is Joined.NEW
    async with store.system() as system:
        assert await system.workers.live(60) == [a_worker(ZERO, instance_id="i2")]
        assert await system.workers.live(60, "another-model") == []
        assert await system.workers.live(-60) == []
        draining = replace(a_worker(ZERO, instance_id="i2"), draining=True)
        await system.workers.join(draining, lease_s=LEASE_S, renewal=True)
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


async def _seen(store: Store, database: Database, seconds_ago: float) -> None:
    with database.admin() as connection:
        connection.execute(
            "UPDATE workers SET last_seen_at = now() - make_interval(secs => %s)", [seconds_ago]
        )


async def test_a_live_workers_id_is_not_given_to_another_process(store: Store) -> None:
    await _join(store, ZERO, "first", address="one:1")
    with pytest.raises(WorkerIdTaken, match="belongs to the instance at one:1"):
        await _join(store, ZERO, "second", address="two:2")
    assert await _join(store, ZERO, "first", address="one:1", renewal=True) is Joined.RENEWED
    async with store.system() as system:
        assert (await system.workers.get(ZERO)).instance_id == "first"


@pytest.mark.parametrize("how", ["restarted", "draining", "lapsed"])
async def test_a_worker_that_was_replaced_never_gets_its_id_back(
    store: Store, database: Database, how: str
) -> None:
    await _join(store, ZERO, "first", address="one:1")
    if how == "draining":
        async with store.system() as system:
            leaving = replace(a_worker(ZERO, instance_id="first"), draining=True)
            await system.workers.join(leaving, lease_s=LEASE_S, renewal=True)
    if how == "lapsed":
        await _seen(store, database, LEASE_S + 1)
    address = "one:1" if how == "restarted" else "two:2"
    assert await _join(store, ZERO, "second", address=address) is Joined.NEW
    for _ in range(2):
        with pytest.raises(WorkerIdTaken):
            await _join(store, ZERO, "first", address="one:1", renewal=True)
        assert await _join(store, ZERO, "second", address=address, renewal=True) is Joined.RENEWED


async def test_a_worker_that_was_removed_is_refused_at_its_next_renewal(store: Store) -> None:
    await _join(store, ZERO)
    async with store.system() as system:
        await system.workers.remove(ZERO)
    with pytest.raises(WorkerIdTaken, match="it was removed"):
        await _join(store, ZERO, renewal=True)
    assert await _join(store, ZERO, "again") is Joined.NEW


async def test_a_worker_whose_lease_had_ended_comes_back_as_it_was(
    store: Store, database: Database
) -> None:
    await _join(store, ZERO)
    await _seen(store, database, LEASE_S + 1)
    assert await _join(store, ZERO, renewal=True) is Joined.BACK
    assert await _join(store, ZERO, renewal=True) is Joined.RENEWED


async def test_of_processes_that_start_at_once_under_one_id_one_gets_it(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(_join(store, ZERO, f"i{n}", address=f"host:{n}") for n in range(8)),
        return_exceptions=True,
    )
    assert outcomes.count(Joined.NEW) == 1
    assert sum(isinstance(outcome, WorkerIdTaken) for outcome in outcomes) == 7
