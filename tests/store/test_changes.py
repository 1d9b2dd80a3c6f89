"""What a copy of a user learns, page by page."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from inferscale_core.ids import ConversationId, TenantId, UserId
from inferscale_core.memory.changes import ChangePage, EmbeddedFact, UserState
from inferscale_core.memory.facts import Fact, NewFact, NewTurn, Turn
from inferscale_core.store import Store
from tests.store.factories import a_tenant, a_user, add_fact, vector

TALK = ConversationId("talk-1")


@dataclass
class Copy:
    """What a worker keeps of a user."""

    state: UserState = field(default_factory=UserState)
    facts: dict[str, EmbeddedFact] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)

    def apply(self, page: ChangePage) -> None:
        for item in page.facts:
            self.facts[item.fact.fact_id] = item
        for fact_id in page.removed_fact_ids:
            self.facts.pop(fact_id, None)
        for turn in page.turns:
            self.turns[turn.turn_id] = turn
        for turn_id in page.removed_turn_ids:
            self.turns.pop(turn_id, None)
        if page.last:
            self.state = page.state


async def _sync(
    store: Store, tenant: TenantId, user: UserId, copy: Copy, *, limit: int = 3, pause_s: float = 0
) -> int:
    """Brings the copy up to date and returns the number of pages it took."""
    reached = copy.state.memory_version
    for count in range(1, 1000):
        async with store.snapshot(tenant) as tx:
            page = await tx.changes.page(user, reached, limit=limit)
        copy.apply(page)
        if page.last:
            return count
        assert page.reached_version > reached
        reached = page.reached_version
        await asyncio.sleep(pause_s)
    raise AssertionError("no last page")


async def test_a_user_nobody_has_written_is_one_empty_page(store: Store) -> None:
    tenant = await a_tenant(store)
    copy = Copy()
    assert await _sync(store, tenant, a_user(), copy) == 1
    assert copy == Copy()


async def test_embeddings_come_as_they_were_stored(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    stored = np.random.default_rng(7).standard_normal(8).astype(np.float32)
    fact = await add_fact(store, tenant, user, "Robin has a dog.", stored)
    copy = Copy()
    await _sync(store, tenant, user, copy)
    [item] = copy.facts.values()
    assert item.fact == fact
    assert np.frombuffer(item.embedding, dtype="<f4").tolist() == stored.tolist()


async def test_only_what_changed_since_is_sent(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    kept, updated, removed = [await add_fact(store, tenant, user, f"{n}.") for n in range(3)]
    copy = Copy()
    await _sync(store, tenant, user, copy, limit=100)
    async with store.transaction(tenant) as tx:
        turns = await tx.turns.append(user, TALK, [NewTurn("Robin", "Hi.")] * 2)
        await tx.turns.delete(user, TALK, [turns[0].turn_id])
        newer = await tx.facts.update(
            user, updated.fact_id, text="Changed.", occurred_at=None, embedding=vector()
        )
        await tx.facts.delete(user, removed.fact_id)
    async with store.snapshot(tenant) as tx:
        page = await tx.changes.page(user, copy.state.memory_version)
    assert [item.fact for item in page.facts] == [newer.fact]
    assert page.removed_fact_ids == (removed.fact_id,)
    assert [turn.turn_id for turn in page.turns] == [turns[1].turn_id]
    assert page.removed_turn_ids == (turns[0].turn_id,)
    assert page.last
    assert page.state == UserState(memory_version=8, kv_epoch=3)
    copy.apply(page)
    assert set(copy.facts) == {kept.fact_id, updated.fact_id}


async def test_many_changes_of_all_kinds_come_in_small_pages(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    facts = [await add_fact(store, tenant, user, f"{n}.") for n in range(8)]
    async with store.transaction(tenant) as tx:
        turns = await tx.turns.append(user, TALK, [NewTurn("Robin", "Hi.")] * 7)
        await tx.turns.delete(user, TALK, [turn.turn_id for turn in turns[:5]])
        for fact in facts[:4]:
            await tx.facts.delete(user, fact.fact_id)
    copy = Copy(facts={f.fact_id: EmbeddedFact(f, b"") for f in facts[:4]})
    copy.turns = {turn.turn_id: turn for turn in turns[:5]}
    assert await _sync(store, tenant, user, copy, limit=2) >= 5
    assert set(copy.facts) == {fact.fact_id for fact in facts[4:]}
    assert set(copy.turns) == {turn.turn_id for turn in turns[5:]}
    assert copy.state == UserState(memory_version=24, kv_epoch=5)


@pytest.mark.parametrize("seed", range(3))
async def test_a_copy_that_reads_pages_while_the_user_changes_ends_exact(
    store: Store, seed: int
) -> None:
    tenant, user = await a_tenant(store), a_user()
    numbers = random.Random(seed)
    live: list[Fact] = []

    async def change(step: int) -> None:
        async with store.transaction(tenant) as tx:
            action = numbers.choice(["add", "add", "update", "delete", "turns"])
            if action == "turns":
                await tx.turns.append(user, TALK, [NewTurn("Robin", f"{step}.")] * 2)
            elif action == "add" or not live:
                new = NewFact(f"Fact {step}.")
                live.append((await tx.facts.add(user, new, vector(step + 1, 1))).fact)
            elif action == "update":
                index = numbers.randrange(len(live))
                updated = await tx.facts.update(
                    user,
                    live[index].fact_id,
                    text=f"Update {step}.",
                    occurred_at=None,
                    embedding=vector(1, step + 1),
                )
                live[index] = updated.fact
            else:
                await tx.facts.delete(user, live.pop(numbers.randrange(len(live))).fact_id)

    async def write() -> None:
        for step in range(40):
            await change(step)

    copies = [Copy() for _ in range(3)]

    async def follow(copy: Copy, pause_s: float) -> None:
        while not writer.done():
            await _sync(store, tenant, user, copy, pause_s=pause_s)
            await asyncio.sleep(pause_s)
        await _sync(store, tenant, user, copy)

    writer = asyncio.create_task(write())
    await asyncio.gather(writer, *(follow(c, 0.002 * i) for i, c in enumerate(copies)))
    async with store.transaction(tenant) as tx:
        state = await tx.users.state(user)
    fresh = Copy()
    await _sync(store, tenant, user, fresh, limit=1000)
    assert {item.fact.fact_id: item.fact for item in fresh.facts.values()} == {
        fact.fact_id: fact for fact in live
    }
    for copy in copies:
        assert copy.state == state
        assert copy.facts == fresh.facts
        assert copy.turns == fresh.turns
