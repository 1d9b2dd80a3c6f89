"""What is removed with time, and what stays although it is old."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, text

from inferscale_core.errors import AlreadyDeleted
from inferscale_core.ids import RequestId, TenantId, UserId
from inferscale_core.memory.facts import NewFact
from inferscale_core.settings import RetentionSettings
from inferscale_core.store import EndedHistory, RequestOutcome, Store
from services.control.retention import Retention
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, a_worker, vector

LEASE_S = 15.0
DAYS = RetentionSettings(history_days=90, audit_days=365)


@pytest.fixture
def database(database_factory: Callable[..., Database]) -> Database:
    """One of its own: what is old enough is removed of all tenants."""
    return database_factory()


def age(database: Database, **days_by_table: float) -> None:
    """Make all that these tables hold older by so many days."""
    column = {"requests": "created_at", "removals": "removed_at", "audit": "at"}
    engine = create_engine(database.admin_url)
    with engine.begin() as connection:
        for table, days in days_by_table.items():
            moment = column.get(table, "joined_at")
            connection.execute(
                text(f"UPDATE {table} SET {moment} = {moment} - make_interval(secs => :s)"),
                {"s": days * 86_400},
            )
    engine.dispose()


async def a_deleted_fact(store: Store, tenant: TenantId, user: UserId, request: str) -> str:
    """Stored and deleted by requests, with a line of the trail each."""
    async with store.transaction(tenant) as tx:
        await tx.requests.claim(RequestId(request), "add_memory", "hash")
        fact = (await tx.facts.add(user, NewFact(f"Fact of {request}."), vector())).fact
        await tx.audit.record("key", "add_memory", user_id=user)
        outcome = RequestOutcome(1, fact_ids=(fact.fact_id,))
        await tx.requests.complete(RequestId(request), outcome)
    async with store.transaction(tenant) as tx:
        await tx.facts.delete(user, fact.fact_id)
    return fact.fact_id


async def removed_since(store: Store, tenant: TenantId, user: UserId) -> set[str]:
    async with store.snapshot(tenant) as tx:
        return set((await tx.changes.page(user, 0)).removed_fact_ids)


async def test_what_is_old_enough_ends_and_what_is_not_stays(
    store: Store, database: Database
) -> None:
    tenant, user = await a_tenant(store), a_user()
    await a_deleted_fact(store, tenant, user, "old")
    age(database, requests=91, removals=91, audit=366)
    new = await a_deleted_fact(store, tenant, user, "new")
    retention = Retention(store, DAYS)
    assert await retention.end() == EndedHistory(requests=1, removals=0, audit=1)
    # Ids of what is gone outlive the requests that name it.
    assert await retention.end() == EndedHistory(removals=1)
    assert await retention.end() == EndedHistory()
    assert await removed_since(store, tenant, user) == {new}
    async with store.transaction(tenant) as tx:
        assert await tx.requests.find(RequestId("old"), "add_memory", "hash") is None
        assert await tx.requests.find(RequestId("new"), "add_memory", "hash") is not None
        assert len(await tx.audit.newest(10)) == 1


async def test_a_replay_within_the_time_says_that_the_fact_is_deleted(
    store: Store, database: Database
) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact_id = await a_deleted_fact(store, tenant, user, "used")
    age(database, requests=89, removals=89)
    assert await Retention(store, DAYS).end() == EndedHistory()
    async with store.transaction(tenant) as tx:
        outcome = await tx.requests.find(RequestId("used"), "add_memory", "hash")
        assert outcome is not None
        assert outcome.fact_ids == (fact_id,)
        with pytest.raises(AlreadyDeleted):
            await tx.facts.replayed(user, outcome.fact_ids[0])


async def test_a_worker_that_ran_before_a_delete_can_learn_of_it_for_as_long_as_it_runs(
    store: Store, database: Database
) -> None:
    tenant, user = await a_tenant(store), a_user()
    worker = a_worker()
    async with store.system() as tx:
        await tx.workers.join(worker, lease_s=LEASE_S, renewal=False)
    fact_id = await a_deleted_fact(store, tenant, user, "old")
    age(database, requests=200, removals=200, workers=201)
    retention = Retention(store, DAYS)
    for _ in range(2):
        assert (await retention.end()).removals == 0
    assert await removed_since(store, tenant, user) == {fact_id}

    async with store.system() as tx:
        await tx.workers.join(worker, lease_s=LEASE_S, renewal=True)
    assert (await retention.end()).removals == 0, "it has only renewed its lease"
    restarted = a_worker(instance_id="another")
    async with store.system() as tx:
        await tx.workers.join(restarted, lease_s=LEASE_S, renewal=False)
    assert (await retention.end()).removals == 1, "a new process has fetched the user since"


async def test_zero_days_keep_all(store: Store, database: Database) -> None:
    tenant, user = await a_tenant(store), a_user()
    await a_deleted_fact(store, tenant, user, "old")
    age(database, requests=10_000, removals=10_000, audit=10_000)
    forever = RetentionSettings(history_days=0, audit_days=0)
    assert await Retention(store, forever).end() == EndedHistory()
    await Retention(store, forever).watch()


async def test_the_services_role_cannot_end_a_younger_trail(
    store: Store, database: Database
) -> None:
    tenant, user = await a_tenant(store), a_user()
    await a_deleted_fact(store, tenant, user, "old")
    age(database, audit=29)
    async with store.system() as tx:
        ended = await tx.end_history(history_days=0, audit_days=1, max_rows=100)
    assert ended.audit == 0


async def test_more_than_a_batch_is_removed_in_batches(store: Store, database: Database) -> None:
    tenant = await a_tenant(store)
    async with store.transaction(tenant) as tx:
        for number in range(25):
            await tx.requests.claim(RequestId(f"r{number}"), "add_memory", "hash")
    age(database, requests=91)
    retention = Retention(store, DAYS, batch_rows=10)
    assert (await retention.end()).requests == 25
