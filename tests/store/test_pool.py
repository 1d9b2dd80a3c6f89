"""Connections that die or are all lent, and errors as the rest of the service sees them."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy import text

from inferscale_core.errors import StoreError, Unavailable
from inferscale_core.ids import TenantId
from inferscale_core.memory.facts import NewFact
from inferscale_core.store import Store
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, add_fact, vector

StoreFactory = Callable[..., Store]


@pytest.fixture
async def open_store(database: Database) -> AsyncIterator[StoreFactory]:
    """Stores with pools of their own."""
    opened: list[Store] = []

    def open_one(**options: float) -> Store:
        opened.append(database.store(**options))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


def _kill_backends(database: Database) -> int:
    with database.admin() as connection:
        killed = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE usename = 'inferscale_app' AND datname = current_database()"
        ).fetchone()
    assert killed is not None
    return int(str(killed[0]))


async def test_the_call_after_all_backends_were_killed_works(
    open_store: StoreFactory, database: Database
) -> None:
    store = open_store(pool_size=2)
    tenant, user = await a_tenant(store), a_user()
    await asyncio.gather(*(add_fact(store, tenant, user, f"Fact {n}.") for n in range(4)))
    assert _kill_backends(database) == 2
    for number in (5, 6):
        await add_fact(store, tenant, user, f"Fact {number}.")


async def test_killing_backends_under_load_fails_calls_as_unavailable_and_loses_no_answer(
    open_store: StoreFactory, database: Database
) -> None:
    store = open_store(pool_size=2)
    tenant, user = await a_tenant(store), a_user()
    stored: list[str] = []
    errors: list[BaseException] = []

    async def write(task: int) -> None:
        for number in range(25):
            statement = f"Fact {task}-{number}."
            try:
                await add_fact(store, tenant, user, statement)
                stored.append(statement)
            except Unavailable as exc:
                errors.append(exc)

    writers = asyncio.gather(*map(write, range(4)))
    killed = 0
    for _ in range(5):
        await asyncio.sleep(0.1)
        killed += await asyncio.to_thread(_kill_backends, database)
    await writers
    assert killed > 0
    assert await add_fact(store, tenant, user, "The next call works.")
    async with store.transaction(tenant) as tx:
        texts = {fact.text for fact in await tx.facts.page(user, limit=500)}
        num_facts = (await tx.tenants.get()).num_facts
    assert texts.issuperset(stored)
    assert num_facts == len(texts)


async def test_a_call_waits_for_a_connection_for_so_long_and_no_longer(
    open_store: StoreFactory,
) -> None:
    store = open_store(pool_size=1, pool_timeout_s=0.2)
    tenant = await a_tenant(store)
    async with store.transaction(tenant):
        with pytest.raises(Unavailable, match="no database connection became free"):
            async with store.transaction(tenant):
                pass
    async with store.transaction(tenant) as tx:
        await tx.tenants.get()


async def test_50_reads_and_20_adds_share_two_connections(open_store: StoreFactory) -> None:
    store = open_store(pool_size=2)
    tenant, user = await a_tenant(store), a_user()
    await add_fact(store, tenant, user, "The first.")

    async def read() -> int:
        async with store.transaction(tenant) as tx:
            return len(await tx.facts.page(user, limit=100))

    adds = [add_fact(store, tenant, user, f"Fact {number}.") for number in range(20)]
    await asyncio.gather(*adds, *(read() for _ in range(50)))
    assert await read() == 21


async def test_a_cancelled_transaction_gives_its_connection_back(open_store: StoreFactory) -> None:
    store = open_store(pool_size=1, pool_timeout_s=5)
    tenant, user = await a_tenant(store), a_user()

    async def hang() -> None:
        async with store.transaction(tenant) as tx:
            await tx.facts.add(user, NewFact("Never committed."), vector())
            await tx._session.execute(text("SELECT pg_sleep(30)"))

    task = asyncio.create_task(hang())
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store.transaction(tenant) as tx:
        assert await tx.facts.page(user, limit=1) == []


async def test_a_server_that_is_not_there_is_unavailable(database: Database) -> None:
    url = database.app_url.update_query_dict({"host": "/nonexistent"})
    store = Store(url, embedding_dimension=8)
    with pytest.raises(Unavailable):
        await store.check()
    await store.close()


async def test_no_error_repeats_the_text_of_a_fact(store: Store, database: Database) -> None:
    tenant, user = await a_tenant(store), a_user()
    secret = str(4400 + 71)
    with database.admin() as connection:
        connection.execute(
            "ALTER TABLE facts ADD CONSTRAINT refuse CHECK (length(text) < 20) NOT VALID"
        )
    try:
        with pytest.raises(StoreError, match="SQLSTATE 23514") as failure:
            await add_fact(store, tenant, user, f"The alarm code is {secret}.")
    finally:
        with database.admin() as connection:
            connection.execute("ALTER TABLE facts DROP CONSTRAINT refuse")
    assert secret not in "".join(traceback.format_exception(failure.value))


async def test_an_empty_tenant_sees_nothing(store: Store) -> None:
    await add_fact(store, await a_tenant(store), user := a_user(), "Robin has a dog.")
    async with store.transaction(TenantId("")) as tx:
        assert await tx.facts.page(user, limit=1) == []
