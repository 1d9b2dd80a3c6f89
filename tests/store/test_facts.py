"""Adding, reading, updating and deleting facts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from inferscale_core.errors import (
    AlreadyDeleted,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    RevisionConflict,
)
from inferscale_core.ids import ConversationId, FactId, TenantId, TurnId, UserId
from inferscale_core.memory.changes import AddedFact
from inferscale_core.memory.deletion import Holder, PurgeState
from inferscale_core.memory.facts import Fact, NewFact, NewTurn
from inferscale_core.memory.tenants import Quotas
from inferscale_core.store import Store
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, add_fact, done, record, vector

TALK = ConversationId("talk-1")


async def test_a_fact_reads_back_as_it_was_stored(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    moment = datetime(2026, 5, 5, 18, 30, tzinfo=UTC)
    async with store.transaction(tenant) as tx:
        [turn] = await tx.turns.append(user, TALK, [NewTurn("Robin", "I moved to Bern.")])
        new = NewFact(" Robin lives in Bern. \n", moment, TALK, (turn.turn_id,))
        added = await tx.facts.add(user, new, vector())
    async with store.transaction(tenant) as tx:
        read = await tx.facts.get(user, added.fact.fact_id)
    assert read == added.fact
    assert not added.already_existed
    assert (read.text, read.occurred_at, read.conversation_id, read.turn_ids) == (
        new.text,
        moment,
        TALK,
        new.turn_ids,
    )
    assert (read.revision, read.memory_version) == (1, 2)
    assert read.created_at.utcoffset() is not None


async def test_32_concurrent_adds_of_one_text_give_one_fact(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()

    async def add() -> AddedFact:
        async with store.transaction(tenant) as tx:
            return await tx.facts.add(user, NewFact("Robin has a dog."), vector())

    added = await asyncio.gather(*(add() for _ in range(32)))
    assert len({item.fact for item in added}) == 1
    assert sum(not item.already_existed for item in added) == 1
    async with store.transaction(tenant) as tx:
        assert (await tx.users.state(user)).memory_version == 1
        assert (await tx.tenants.get()).num_facts == 1


@pytest.mark.parametrize(
    ("text", "occurred_at"),
    [
        ("Caf\u00e9 Zur Post is closed.\n", None),
        ("Cafe\u0301 Zur Post is closed.", None),
        ("Café Zur Post is closed.", datetime(2026, 5, 5, 8, tzinfo=UTC)),
        ("  Café Zur Post is closed.", datetime(2026, 5, 5, 23, tzinfo=UTC)),
    ],
)
async def test_what_reads_the_same_is_one_fact(
    store: Store, text: str, occurred_at: datetime | None
) -> None:
    tenant, user = await a_tenant(store), a_user()
    day = datetime(2026, 5, 5, 12, tzinfo=UTC) if occurred_at else None
    async with store.transaction(tenant) as tx:
        first = await tx.facts.add(user, NewFact("Café Zur Post is closed.", day), vector())
        again = await tx.facts.add(user, NewFact(text, occurred_at), vector())
    assert again == AddedFact(first.fact, already_existed=True)


async def test_another_day_another_case_or_another_user_is_another_fact(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        added = [
            await tx.facts.add(user, NewFact("It rained."), vector()),
            await tx.facts.add(user, NewFact("it rained."), vector()),
            await tx.facts.add(
                user, NewFact("It rained.", datetime(2026, 5, 5, tzinfo=UTC)), vector()
            ),
            await tx.facts.add(
                user, NewFact("It rained.", datetime(2026, 5, 6, tzinfo=UTC)), vector()
            ),
            await tx.facts.add(a_user(), NewFact("It rained."), vector()),
        ]
    assert not any(item.already_existed for item in added)


async def test_bad_items_of_a_batch_leave_the_others_alone(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    items = [(NewFact(f"Fact {number}."), vector(number + 1, 1)) for number in range(50)]
    items[7] = (NewFact("Fact with \0."), vector())
    items[20] = (NewFact("Fact from nowhere.", turn_ids=(TurnId("no-such-turn"),)), vector())
    items[33] = (NewFact("Fact without direction."), np.zeros(8, dtype=np.float32))
    async with store.transaction(tenant) as tx:
        outcomes = await tx.facts.add_many(user, items)
    refused = {i: type(o) for i, o in enumerate(outcomes) if not isinstance(o, AddedFact)}
    assert refused == {7: InvalidInput, 20: NotFound, 33: InvalidInput}
    async with store.transaction(tenant) as tx:
        facts = await tx.facts.page(user, limit=100)
        assert (await tx.tenants.get()).num_facts == 47
    assert [fact.memory_version for fact in facts] == list(range(1, 48))


async def test_equal_items_of_a_batch_are_one_fact_and_a_quota_refuses_the_rest(
    store: Store,
) -> None:
    tenant, user = await a_tenant(store, quotas=Quotas(max_facts=3)), a_user()
    known = await add_fact(store, tenant, user, "A.")
    texts = ["B.", "A.", "B.", "C.", "D.", "D.", "E."]
    async with store.transaction(tenant) as tx:
        outcomes = await tx.facts.add_many(user, [(NewFact(text), vector()) for text in texts])
    assert [(o.fact.text, o.already_existed) for o in outcomes[:4] if isinstance(o, AddedFact)] == [
        ("B.", False),
        ("A.", True),
        ("B.", True),
        ("C.", False),
    ]
    assert outcomes[1] == AddedFact(known, already_existed=True)
    assert [type(outcome) for outcome in outcomes[4:]] == [QuotaExceeded] * 3
    async with store.transaction(tenant) as tx:
        assert (await tx.tenants.get()).num_facts == 3


async def test_times_are_utc_whatever_the_server_is_set_to(
    database_factory: Callable[..., Database],
) -> None:
    database = database_factory()
    with database.admin() as connection:
        name = database.admin_url.database
        connection.execute(f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'")
    store = database.store()
    tenant, user = await a_tenant(store), a_user()
    moment = datetime(2026, 5, 5, 23, 30, tzinfo=UTC)
    async with store.transaction(tenant) as tx:
        added = await tx.facts.add(user, NewFact("It rained.", moment), vector())
        read = await tx.facts.get(user, added.fact.fact_id)
    await store.close()
    assert read.occurred_at is not None
    assert (read.occurred_at.day, read.occurred_at.utcoffset()) == (5, timedelta())


async def test_pages_hold_every_fact_once_in_order(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    stored = [await add_fact(store, tenant, user, f"Fact {number}.") for number in range(7)]
    read: list[Fact] = []
    async with store.transaction(tenant) as tx:
        while page := await tx.facts.page(
            user, after_version=read[-1].memory_version if read else 0, limit=3
        ):
            read += page
    assert read == stored


async def test_an_update_writes_the_next_revision_and_moves_the_fact_to_the_end(
    store: Store,
) -> None:
    tenant, user = await a_tenant(store), a_user()
    first = await add_fact(store, tenant, user, "Robin lives in Bern.")
    await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        updated = await tx.facts.update(
            user,
            first.fact_id,
            text="Robin lives in Basel.",
            occurred_at=None,
            embedding=vector(0, 1),
            expected_revision=1,
        )
    assert (updated.fact.revision, updated.fact.memory_version) == (2, 3)
    assert updated.fact.created_at == first.created_at
    assert (updated.state.memory_version, updated.state.kv_epoch) == (3, 1)
    async with store.transaction(tenant) as tx:
        assert await tx.facts.get(user, first.fact_id) == updated.fact
        [nearest] = await tx.facts.nearest(user, vector(0, 1), limit=1)
        assert nearest.fact == updated.fact
        assert (await tx.tenants.get()).num_facts == 2


async def test_an_update_of_a_revision_that_moved_on_is_refused(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin lives in Bern.")

    async def update(number: int) -> int:
        async with store.transaction(tenant) as tx:
            updated = await tx.facts.update(
                user,
                fact.fact_id,
                text=f"Robin lives at number {number}.",
                occurred_at=None,
                embedding=vector(),
                expected_revision=1,
            )
        return updated.fact.revision

    outcomes = await asyncio.gather(*(update(n) for n in range(8)), return_exceptions=True)
    assert sorted(map(str, outcomes)).count("2") == 1
    refused = [outcome for outcome in outcomes if isinstance(outcome, RevisionConflict)]
    assert len(refused) == 7
    assert {(exc.expected, exc.actual) for exc in refused} == {(1, 2)}


async def test_an_update_to_what_another_fact_states_is_refused(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin lives in Bern.")
    other = await add_fact(store, tenant, user, "Robin lives in Basel.")
    with pytest.raises(InvalidInput, match=other.fact_id):
        async with store.transaction(tenant) as tx:
            await tx.facts.update(
                user, fact.fact_id, text=other.text, occurred_at=None, embedding=vector()
            )
    async with store.transaction(tenant) as tx:
        assert await tx.facts.get(user, fact.fact_id) == fact


async def test_a_delete_leaves_no_text_and_no_embedding_of_any_revision(
    store: Store, database: Database
) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin keeps a spare key at the office.")
    async with store.transaction(tenant) as tx:
        await tx.facts.update(
            user, fact.fact_id, text="The spare key moved.", occurred_at=None, embedding=vector()
        )
    await record(store, tenant, user, done(await _get(store, tenant, user, fact.fact_id)))
    async with store.transaction(tenant) as tx:
        deleted = await tx.facts.delete(user, fact.fact_id)
    lines = {line.holder: (line.state, line.count) for line in deleted.receipt.lines}
    assert lines == {
        Holder.ROW: (PurgeState.PURGED, 2),
        Holder.EMBEDDING: (PurgeState.PURGED, 1),
        Holder.DEPENDANTS: (PurgeState.PURGED, 0),
    }
    with database.admin() as connection:
        for table in ("facts", "fact_embeddings", "encodings", "chunk_facts"):
            left = connection.execute(
                f"SELECT count(*) FROM {table} WHERE tenant_id = %s", [tenant]
            ).fetchone()
            assert left == (0,), table
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind = 'r'"
        ).fetchall()
        assert len(tables) > 15
        for (name,) in tables:
            hits = connection.execute(
                f"SELECT count(*) FROM {name} t WHERE t::text ILIKE '%%spare key%%'"
            ).fetchone()
            assert hits == (0,), name


async def test_a_second_delete_is_not_found_and_a_replayed_add_says_deleted(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        await tx.facts.delete(user, fact.fact_id)
    with pytest.raises(NotFound):
        async with store.transaction(tenant) as tx:
            await tx.facts.delete(user, fact.fact_id)
    async with store.transaction(tenant) as tx:
        with pytest.raises(AlreadyDeleted):
            await tx.facts.replayed(user, fact.fact_id)
        with pytest.raises(NotFound):
            await tx.facts.replayed(user, FactId("never-stored"))
        state = await tx.users.state(user)
        assert (state.memory_version, state.kv_epoch) == (2, 1)
        assert (await tx.tenants.get()).num_facts == 0


async def test_a_deleted_statement_can_be_added_again_as_a_new_fact(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    first = await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        await tx.facts.delete(user, first.fact_id)
    again = await add_fact(store, tenant, user, "Robin has a dog.")
    assert again.fact_id > first.fact_id
    assert again.revision == 1


async def test_a_source_turn_is_looked_for_in_the_facts_own_conversation(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        [turn] = await tx.turns.append(user, TALK, [NewTurn("Robin", "I have a dog.")])
        elsewhere = NewFact("Robin has a dog.", None, ConversationId("another"), (turn.turn_id,))
        with pytest.raises(NotFound, match=turn.turn_id):
            await tx.facts.add(user, elsewhere, vector())
        here = NewFact("Robin has a dog.", None, TALK, (turn.turn_id,))
        assert (await tx.facts.add(user, here, vector())).fact.turn_ids == (turn.turn_id,)


async def test_a_delete_names_the_source_turns_that_remain_or_purges_them(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        turns = await tx.turns.append(
            user, TALK, [NewTurn("Robin", "I have a dog."), NewTurn("Robin", "And a cat.")]
        )
        facts = [
            (
                await tx.facts.add(user, NewFact(f"Pet {i}.", None, TALK, (t.turn_id,)), vector())
            ).fact
            for i, t in enumerate(turns)
        ]
    async with store.transaction(tenant) as tx:
        kept = await tx.facts.delete(user, facts[0].fact_id)
        purged = await tx.facts.delete(user, facts[1].fact_id, purge_sources=True)
    assert (kept.receipt.source_turn_ids, kept.purged_turn_ids) == ((turns[0].turn_id,), ())
    assert (purged.receipt.source_turn_ids, purged.purged_turn_ids) == ((), (turns[1].turn_id,))
    async with store.transaction(tenant) as tx:
        assert await tx.turns.existing(user, [t.turn_id for t in turns]) == (turns[0].turn_id,)


@pytest.mark.parametrize(
    ("quotas", "name"),
    [(Quotas(max_facts=5), "max_facts"), (Quotas(max_facts_per_user=5), "max_facts_per_user")],
)
async def test_quotas_are_exact_under_concurrency(store: Store, quotas: Quotas, name: str) -> None:
    tenant = await a_tenant(store, quotas=quotas)
    users = [a_user() for _ in range(3)] if name == "max_facts" else [a_user()]

    async def add(number: int) -> Fact:
        return await add_fact(store, tenant, users[number % len(users)], f"Fact {number}.")

    outcomes = await asyncio.gather(*(add(n) for n in range(24)), return_exceptions=True)
    stored = [outcome for outcome in outcomes if isinstance(outcome, Fact)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert (len(stored), len(refused)) == (5, 19)
    assert {(exc.quota, exc.limit) for exc in refused} == {(name, 5)}
    async with store.transaction(tenant) as tx:
        assert (await tx.tenants.get()).num_facts == 5
        await tx.facts.delete(stored[0].user_id, stored[0].fact_id)
    assert await add_fact(store, tenant, stored[0].user_id, "Room for one more.")


async def test_users_and_tenants_do_not_see_each_others_facts(store: Store) -> None:
    tenant, other_tenant, user = await a_tenant(store), await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    for tenant_id, user_id in ((other_tenant, user), (tenant, a_user())):
        async with store.transaction(tenant_id) as tx:
            with pytest.raises(NotFound):
                await tx.facts.get(user_id, fact.fact_id)
            assert await tx.facts.page(user_id, limit=10) == []
            assert await tx.facts.nearest(user_id, vector(), limit=10) == []


async def test_writing_for_an_unknown_tenant_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="no-such-tenant"):
        await add_fact(store, TenantId("no-such-tenant"), a_user(), "Robin has a dog.")


async def _get(store: Store, tenant: TenantId, user: UserId, fact_id: FactId) -> Fact:
    async with store.transaction(tenant) as tx:
        return await tx.facts.get(user, fact_id)
