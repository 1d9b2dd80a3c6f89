"""Request ids: the first answer again, or a refusal."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import FactId, RequestId
from inferscale_core.memory.facts import NewFact
from inferscale_core.store import RequestOutcome, Store, content_hash
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, vector

REQUEST = RequestId("request-1")


async def test_concurrent_requests_with_one_id_run_once_and_answer_alike(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    content = content_hash("add", user, "Robin has a dog.")
    runs = 0

    async def add() -> RequestOutcome:
        nonlocal runs
        async with store.transaction(tenant) as tx:
            earlier = await tx.requests.claim(REQUEST, "add_memory", content)
            if earlier:
                return earlier
            runs += 1
            added = await tx.facts.add(user, NewFact("Robin has a dog."), vector())
            await tx.audit.record("key-1", "add_memory", user_id=user, request_id=REQUEST)
            outcome = RequestOutcome(memory_version=1, fact_ids=(added.fact.fact_id, None))
            await tx.requests.complete(REQUEST, outcome)
            return outcome

    outcomes = await asyncio.gather(*(add() for _ in range(16)))
    assert len(set(outcomes)) == 1
    assert runs == 1
    async with store.transaction(tenant) as tx:
        assert await tx.requests.find(REQUEST, "add_memory", content) == outcomes[0]
        [entry] = await tx.audit.newest(10)
    assert (entry.actor, entry.action, entry.user_id) == ("key-1", "add_memory", user)


@pytest.mark.parametrize(("operation", "content"), [("add_memory", "h2"), ("delete_memory", "h1")])
async def test_an_id_used_for_something_else_is_refused_by_name(
    store: Store, operation: str, content: str
) -> None:
    tenant = await a_tenant(store)
    async with store.transaction(tenant) as tx:
        assert await tx.requests.claim(REQUEST, "add_memory", "h1") is None
        await tx.requests.complete(REQUEST, RequestOutcome(memory_version=1))
    for ask in ("find", "claim"):
        async with store.transaction(tenant) as tx:
            with pytest.raises(InvalidInput) as refusal:
                await getattr(tx.requests, ask)(REQUEST, operation, content)
        assert refusal.value.field == "request_id"


async def test_a_request_that_was_rolled_back_leaves_its_id_free(store: Store) -> None:
    tenant = await a_tenant(store)
    with contextlib.suppress(RuntimeError):
        async with store.transaction(tenant) as tx:
            await tx.requests.claim(REQUEST, "add_memory", "h1")
            raise RuntimeError
    async with store.transaction(tenant) as tx:
        assert await tx.requests.claim(REQUEST, "add_memory", "h2") is None
        await tx.requests.complete(REQUEST, RequestOutcome())


async def test_two_tenants_may_use_the_same_id(store: Store) -> None:
    for content in ("h1", "h2"):
        async with store.transaction(await a_tenant(store)) as tx:
            assert await tx.requests.claim(REQUEST, "add_memory", content) is None


async def test_the_log_and_the_audit_hold_ids_and_no_text(store: Store, database: Database) -> None:
    tenant, user = await a_tenant(store), a_user()
    text = "The alarm code is 4471."
    async with store.transaction(tenant) as tx:
        await tx.requests.claim(REQUEST, "add_memory", content_hash(text))
        added = await tx.facts.add(user, NewFact(text), vector())
        await tx.audit.record("k", "add_memory", user_id=user, ids={"memory": [added.fact.fact_id]})
        outcome = RequestOutcome(fact_ids=(FactId(added.fact.fact_id),))
        await tx.requests.complete(REQUEST, outcome)
    with database.admin() as connection:
        for table in ("requests", "audit"):
            rows = connection.execute(
                f"SELECT t::text FROM {table} t WHERE tenant_id = %s", [tenant]
            ).fetchall()
            assert len(rows) == 1
            assert added.fact.fact_id in str(rows)
            assert "4471" not in str(rows)
