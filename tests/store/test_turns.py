"""Conversations and their turns."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from inferscale_core.errors import InvalidInput, NotFound
from inferscale_core.ids import ConversationId, TurnId
from inferscale_core.memory.facts import NewTurn
from inferscale_core.store import Store
from tests.store.factories import a_tenant, a_user

TALK = ConversationId("talk-1")


async def test_turns_go_behind_the_last_one_and_each_has_a_version(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        first = await tx.turns.append(user, TALK, [NewTurn("Robin", "Hi."), NewTurn("Ada", "Hey.")])
        second = await tx.turns.append(user, TALK, [NewTurn("Robin", "Bye.", turn_id=TurnId("t9"))])
    assert [turn.position for turn in (*first, *second)] == [0, 1, 2]
    assert [turn.memory_version for turn in (*first, *second)] == [1, 2, 3]
    assert second[0].turn_id == "t9"


async def test_concurrent_appends_never_share_a_position(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()

    async def append(number: int) -> list[int]:
        async with store.transaction(tenant) as tx:
            turns = await tx.turns.append(user, TALK, [NewTurn("Robin", f"{number}.")] * 3)
        return [turn.position for turn in turns]

    runs = await asyncio.gather(*map(append, range(10)))
    assert sorted(itertools.chain(*runs)) == list(range(30))
    assert all(run == list(range(run[0], run[0] + 3)) for run in runs)


async def test_a_turn_id_that_is_taken_is_refused_by_its_place(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    named = NewTurn("Robin", "Hi.", turn_id=TurnId("t1"))
    async with store.transaction(tenant) as tx:
        await tx.turns.append(user, TALK, [named])
        with pytest.raises(InvalidInput, match=r"turns\[1\]\.turn_id"):
            await tx.turns.append(user, ConversationId("talk-2"), [NewTurn("Ada", "Hey."), named])


async def test_deleting_a_conversation_removes_its_turns_alone(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        gone = await tx.turns.append(user, TALK, [NewTurn("Robin", "Hi.")] * 2)
        [kept] = await tx.turns.append(user, ConversationId("talk-2"), [NewTurn("Robin", "Hi.")])
        deleted = await tx.turns.delete(user, TALK)
        ids = [turn.turn_id for turn in (*gone, kept)]
        assert await tx.turns.existing(user, ids) == (kept.turn_id,)
        assert deleted.turn_ids == tuple(turn.turn_id for turn in gone)
        [later] = await tx.turns.append(user, TALK, [NewTurn("Robin", "Again.")])
    assert later.position == 2


async def test_unknown_turns_and_conversations_are_not_found(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        [turn] = await tx.turns.append(user, TALK, [NewTurn("Robin", "Hi.")])
    for conversation, turn_ids in (
        (ConversationId("talk-2"), None),
        (TALK, [TurnId("unknown")]),
        (TALK, [turn.turn_id, TurnId("unknown")]),
    ):
        with pytest.raises(NotFound):
            async with store.transaction(tenant) as tx:
                await tx.turns.delete(user, conversation, turn_ids)
    async with store.transaction(tenant) as tx:
        assert await tx.turns.existing(user, [turn.turn_id]) == (turn.turn_id,)
