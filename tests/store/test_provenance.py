"""Encode states, and what a delete or update drops."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from inferscale_core.ids import ConversationId, ModelRevision, RecipeHash, TenantId, UserId
from inferscale_core.memory.encoding import EncodeState, EncodeTarget
from inferscale_core.memory.facts import Fact, FactRef, NewTurn, Turn
from inferscale_core.store import Store
from tests.fixtures_postgres import Database
from tests.store.factories import (
    TARGET,
    a_tenant,
    a_user,
    a_worker,
    add_fact,
    done,
    record,
    states_of,
    vector,
)

TALK = ConversationId("talk-1")


async def _chain(store: Store, tenant: TenantId, user: UserId) -> list[Fact]:
    """A, then B that saw A, then C that saw B, and D that saw none."""
    texts = ("The alarm code is 4471.", "The alarm was serviced in May.", "It is loud.", "Tea.")
    a, b, c, d = [await add_fact(store, tenant, user, text) for text in texts]
    assert await record(store, tenant, user, done(a), done(b, a), done(c, b), done(d)) == 4
    return [a, b, c, d]


async def _update(store: Store, tenant: TenantId, fact: Fact) -> tuple[Fact, tuple[str, ...]]:
    async with store.transaction(tenant) as tx:
        updated = await tx.facts.update(
            fact.user_id,
            fact.fact_id,
            text=f"{fact.text} (since corrected)",
            occurred_at=None,
            embedding=vector(),
        )
    return updated.fact, updated.dependants


async def test_a_new_fact_is_pending_for_each_model_of_the_tenant(store: Store) -> None:
    tenant, user = await a_tenant(store, models=("tiny", "large")), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        statuses = (await tx.encodings.statuses(user, [fact.fact_id]))[fact.fact_id]
    assert [(s.target, s.state) for s in statuses] == [
        (EncodeTarget("large"), EncodeState.PENDING),
        (EncodeTarget("tiny"), EncodeState.PENDING),
    ]


async def test_a_result_replaces_the_state_that_waited_for_a_first_worker(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    failed = replace(done(fact), state=EncodeState.FAILED, reason="engine", chunk_digest="")
    await record(store, tenant, user, failed)
    async with store.transaction(tenant) as tx:
        [status] = (await tx.encodings.statuses(user, [fact.fact_id]))[fact.fact_id]
    assert (status.target, status.state, status.reason) == (TARGET, EncodeState.FAILED, "engine")
    await record(store, tenant, user, done(fact))
    async with store.transaction(tenant) as tx:
        assert await tx.encodings.count(user) == {EncodeState.DONE: 1}


async def test_states_of_a_target_that_no_worker_serves_any_more_give_way(
    database_factory: object,
) -> None:
    database: Database = database_factory()  # type: ignore[operator]
    store = database.store()
    async with store.system() as system:
        await system.workers.join(a_worker(), lease_s=60, renewal=False)
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        [status] = (await tx.encodings.statuses(user, [fact.fact_id]))[fact.fact_id]
    assert status.target == TARGET
    newer = replace(TARGET, model_revision=ModelRevision("tiny@2"), recipe_hash=RecipeHash("r2"))
    second = replace(a_worker("worker-1"), model_revision=newer.model_revision, recipe_hash="r2")  # type: ignore[arg-type]
    async with store.system() as system:
        await system.workers.join(second, lease_s=60, renewal=False)
    await record(store, tenant, user, replace(done(fact), target=newer))
    async with store.transaction(tenant) as tx:
        both = (await tx.encodings.statuses(user, [fact.fact_id]))[fact.fact_id]
    assert {s.target for s in both} == {TARGET, newer}
    async with store.system() as system:
        await system.workers.remove(a_worker().worker_id)
    await record(store, tenant, user, replace(done(fact), target=newer))
    async with store.transaction(tenant) as tx:
        [left] = (await tx.encodings.statuses(user, [fact.fact_id]))[fact.fact_id]
    assert left.target == newer
    await store.close()


async def test_a_delete_drops_what_saw_the_fact_directly_and_through_others(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    a, b, c, d = await _chain(store, tenant, user)
    async with store.transaction(tenant) as tx:
        deleted = await tx.facts.delete(user, a.fact_id)
    assert deleted.receipt.dependant_fact_ids == (b.fact_id, c.fact_id)
    assert await states_of(store, tenant, user, b, c, d) == ["dropped", "dropped", "done"]


async def test_an_update_drops_what_saw_the_old_revision(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    a, b, c, d = await _chain(store, tenant, user)
    updated, dependants = await _update(store, tenant, b)
    assert dependants == (c.fact_id,)
    assert await states_of(store, tenant, user, a, updated, c, d) == [
        "done",
        "pending",
        "dropped",
        "done",
    ]


async def test_what_was_encoded_again_without_the_fact_is_not_dropped_again(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    a, b, c, d = await _chain(store, tenant, user)
    async with store.transaction(tenant) as tx:
        await tx.facts.delete(user, a.fact_id)
    await record(store, tenant, user, done(b), done(c, d))
    async with store.transaction(tenant) as tx:
        deleted = await tx.facts.delete(user, b.fact_id)
    assert deleted.receipt.dependant_fact_ids == ()
    assert await states_of(store, tenant, user, c, d) == ["done", "done"]


async def test_dependence_stays_within_one_model_and_recipe(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    a, b, c, _ = await _chain(store, tenant, user)
    other = replace(TARGET, recipe_hash=RecipeHash("other"))
    await record(store, tenant, user, *(replace(done(f), target=other) for f in (b, c)))
    await record(store, tenant, user, replace(done(c, b), target=other))
    async with store.transaction(tenant) as tx:
        await tx.facts.delete(user, a.fact_id)
        statuses = await tx.encodings.statuses(user, [c.fact_id])
    by_recipe = {s.target.recipe_hash: s.state for s in statuses[c.fact_id]}
    assert by_recipe[RecipeHash("other")] == EncodeState.DONE


@pytest.mark.parametrize("how", ["deleted", "updated"])
async def test_what_was_seen_as_text_is_reached_itself_and_hands_nothing_on(
    store: Store, how: str
) -> None:
    """B saw A, C saw B as text, D saw C: C depends on what B states, not on what B's chunk saw."""
    tenant, user = await a_tenant(store), a_user()
    a, b, c, d = [await add_fact(store, tenant, user, text) for text in ("A.", "B.", "C.", "D.")]
    results = (done(a), done(b, a), replace(done(c, b), saw_as_text=True), done(d, c))
    assert await record(store, tenant, user, *results) == 4

    async def change(fact: Fact) -> set[str]:
        if how == "updated":
            return set((await _update(store, tenant, fact))[1])
        async with store.transaction(tenant) as tx:
            deleted = await tx.facts.delete(user, fact.fact_id)
        return set(deleted.receipt.dependant_fact_ids)

    assert await change(a) == {b.fact_id}
    assert await record(store, tenant, user, done(b)) == 1
    assert await change(b) == {c.fact_id, d.fact_id}


async def test_a_deleted_turn_drops_the_chunks_that_saw_it(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    turns = await _talk(store, tenant, user, "Hello.", "The code is 4471.", "Thanks.")
    a, b = [await add_fact(store, tenant, user, text) for text in ("A.", "B.")]
    await record(
        store,
        tenant,
        user,
        done(a, turn_ids=[turns[0].turn_id]),
        done(b, turn_ids=[turns[0].turn_id, turns[1].turn_id]),
    )
    async with store.transaction(tenant) as tx:
        deleted = await tx.turns.delete(user, TALK, [turns[1].turn_id])
    assert deleted.dependants == (b.fact_id,)
    assert deleted.state.kv_epoch == 1
    assert await states_of(store, tenant, user, a, b) == ["done", "dropped"]


async def test_late_results_are_discarded_when_something_they_saw_is_gone(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    [turn] = await _talk(store, tenant, user, "The code is 4471.")
    a, b, c = [await add_fact(store, tenant, user, text) for text in ("A.", "B.", "C.")]
    async with store.transaction(tenant) as tx:
        await tx.facts.delete(user, a.fact_id)
        await tx.turns.delete(user, TALK)
    newer, _ = await _update(store, tenant, c)
    late = [
        done(a),
        done(b, a),
        done(b, turn_ids=[turn.turn_id]),
        done(c),
        done(b, c),
        done(b, FactRef(newer.fact_id, 3)),
    ]
    for result in late:
        assert await record(store, tenant, user, result) == 0
    assert await states_of(store, tenant, user, b, newer) == ["pending", "pending"]
    assert await record(store, tenant, user, done(newer), done(b, newer)) == 2


async def test_results_asked_for_before_a_delete_are_discarded_though_all_they_name_lives(
    store: Store,
) -> None:
    """C's prefix names B alone, but the B it saw had seen A."""
    tenant, user = await a_tenant(store), a_user()
    a, b, c = [await add_fact(store, tenant, user, text) for text in ("A.", "B.", "C.")]
    await record(store, tenant, user, done(a), done(b, a))
    async with store.transaction(tenant) as tx:
        epoch_asked = (await tx.users.state(user)).kv_epoch
        await tx.facts.delete(user, a.fact_id)
    async with store.transaction(tenant) as tx:
        assert await tx.encodings.record(user, [done(c, b)], kv_epoch=epoch_asked) == 0
    assert await states_of(store, tenant, user, b, c) == ["dropped", "pending"]


@pytest.mark.parametrize("seed", range(4))
async def test_no_interleaving_of_results_and_deletes_leaves_a_chunk_that_saw_a_deleted_fact(
    store: Store, database: Database, seed: int
) -> None:
    tenant, user = await a_tenant(store), a_user()
    facts = [await add_fact(store, tenant, user, f"Fact {n}.") for n in range(12)]

    async def encode(number: int) -> None:
        async with store.transaction(tenant) as tx:
            epoch = (await tx.users.state(user)).kv_epoch
        await asyncio.sleep(0.001 * ((number * 7 + seed) % 5))
        async with store.transaction(tenant) as tx:
            await tx.encodings.record(
                user, [done(facts[number], *facts[max(0, number - 3) : number])], kv_epoch=epoch
            )

    async def delete(number: int) -> None:
        await asyncio.sleep(0.001 * (number % 4))
        async with store.transaction(tenant) as tx:
            await tx.facts.delete(user, facts[number].fact_id)

    await asyncio.gather(*map(encode, range(12)), *map(delete, (1, 4, 8)))
    with database.admin() as connection:
        tainted = connection.execute(
            """
            SELECT count(*) FROM chunk_facts c WHERE c.tenant_id = %s AND NOT EXISTS (
                SELECT 1 FROM facts f WHERE f.fact_id = c.prefix_fact_id AND f.is_live)
            """,
            [tenant],
        ).fetchone()
        recorded = connection.execute(
            "SELECT count(*) FROM encodings WHERE tenant_id = %s AND fact_id = ANY (%s)",
            [tenant, [facts[n].fact_id for n in (1, 4, 8)]],
        ).fetchone()
    assert tainted == (0,)
    assert recorded == (0,)


async def _talk(store: Store, tenant: TenantId, user: UserId, *texts: str) -> list[Turn]:
    async with store.transaction(tenant) as tx:
        return await tx.turns.append(user, TALK, [NewTurn("Robin", text) for text in texts])
