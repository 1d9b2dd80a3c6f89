"""Listing, searching and conversations."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from inferscale_core.client import NewMemory, Tier, Turn
from inferscale_core.errors import InvalidInput, NotFound
from tests.control.harness import Control, Tenant


async def test_pages_hold_every_fact_once_the_oldest_version_first(tenant: Tenant) -> None:
    await tenant.client.batch_add_memories("mira", [NewMemory(f"Fact {n}.") for n in range(7)])
    sizes, texts, token = [], [], None
    while True:
        page = await tenant.client.list_memories("mira", page_size=3, page_token=token)
        assert page.memory_version == 7
        sizes.append(len(page.memories))
        texts += [memory.text for memory in page.memories]
        token = page.next_page_token
        if token is None:
            break
    assert sizes == [3, 3, 1]
    assert texts == [f"Fact {n}." for n in range(7)]


async def test_a_page_that_is_just_full_is_the_last(tenant: Tenant) -> None:
    await tenant.client.batch_add_memories("mira", [NewMemory(f"Fact {n}.") for n in range(3)])
    page = await tenant.client.list_memories("mira", page_size=3)
    assert (len(page.memories), page.next_page_token) == (3, None)


async def test_a_user_whom_nobody_has_written_has_an_empty_memory(tenant: Tenant) -> None:
    page = await tenant.client.list_memories("nobody")
    found = await tenant.client.search_memories("nobody", "anything")
    assert (page.memories, page.memory_version) == ((), 0)
    assert (found.memories, found.memory_version) == ((), 0)


@pytest.mark.parametrize("token", ["x", "dm9pZA==", "djEtMQ==", "v1", "dg==", "💥"])
async def test_a_page_token_of_nobodys_making_is_refused(tenant: Tenant, token: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await tenant.client.list_memories("mira", page_token=token)
    assert refused.value.field == "page_token"


async def test_a_page_token_of_another_user_is_refused(tenant: Tenant) -> None:
    for user_id in ("mira", "robin"):
        items = [NewMemory(f"Fact {n}.") for n in range(3)]
        await tenant.client.batch_add_memories(user_id, items)
    page = await tenant.client.list_memories("mira", page_size=2)
    with pytest.raises(InvalidInput, match="for this user") as refused:
        await tenant.client.list_memories("robin", page_token=page.next_page_token)
    assert refused.value.field == "page_token"


@pytest.mark.parametrize("size", [501, 2**31])
async def test_a_page_size_out_of_range_is_refused(tenant: Tenant, size: int) -> None:
    with pytest.raises(InvalidInput, match=rf"{size} is not in 1..500"):
        await tenant.client.list_memories("mira", page_size=size)


async def test_a_search_finds_the_nearest_first_and_sees_the_last_write(tenant: Tenant) -> None:
    await tenant.client.batch_add_memories(
        "mira",
        [NewMemory("Rain is forecast."), NewMemory("The spare key is at the office.")],
    )
    added = await tenant.client.add_memory("mira", "Robin keeps the spare key.")
    found = await tenant.client.search_memories(
        "mira", "Robin keeps the spare key.", k=2, min_memory_version=added.memory_version
    )
    texts = [scored.memory.text for scored in found.memories]
    assert texts == ["Robin keeps the spare key.", "The spare key is at the office."]
    assert found.memories[0].score == pytest.approx(1.0, abs=1e-5)
    assert found.memories[0].score > found.memories[1].score


async def test_a_search_above_the_users_version_is_refused(tenant: Tenant) -> None:
    await tenant.client.add_memory("mira", "Mira has a dog.")
    with pytest.raises(InvalidInput, match="2 is above the user's version 1") as refused:
        await tenant.client.search_memories("mira", "dog", min_memory_version=2)
    assert refused.value.field == "min_memory_version"


async def test_a_query_is_not_cut_silently(tenant: Tenant) -> None:
    with pytest.raises(InvalidInput, match="82 tokens; the embedder's window is 64"):
        await tenant.client.search_memories("mira", "word " * 80)


async def test_a_fact_says_where_its_chunk_is_held(control: Control, tenant: Tenant) -> None:
    worker = await control.worker(tenant.model)
    added = await tenant.client.add_memory("mira", "Mira has a dog.")
    memory = await tenant.encoded("mira", added.memory.memory_id)
    [residency] = memory.residency
    assert (residency.worker_id, residency.tier) == (worker.worker_id, Tier.HOST)
    assert residency.model_revision == f"{tenant.model}@1"
    await worker.stop()
    assert (await tenant.client.get_memory("mira", memory.memory_id)).residency == ()


async def test_turns_keep_their_order_and_can_be_a_facts_source(tenant: Tenant) -> None:
    moment = datetime(2025, 3, 1, tzinfo=UTC)
    first = await tenant.client.append_turns(
        "mira", "talk", [Turn("Mira", "I got a dog.", moment), Turn("Bot", "Nice!", turn_id="t2")]
    )
    again = await tenant.client.append_turns("mira", "talk", [Turn("Mira", "His name is Odo.")])
    assert first.turn_ids[1] == "t2"
    assert (first.memory_version, again.memory_version) == (2, 3)
    added = await tenant.client.add_memory(
        "mira", "Mira has a dog.", conversation_id="talk", turn_ids=[first.turn_ids[0]]
    )
    assert added.memory.turn_ids == (first.turn_ids[0],)
    assert added.memory.conversation_id == "talk"


async def test_turns_are_appended_once_for_a_request_id(tenant: Tenant) -> None:
    turns = [Turn("Mira", "I got a dog.")]
    first = await tenant.client.append_turns("mira", "talk", turns, request_id="t")
    again = await tenant.client.append_turns("mira", "talk", turns, request_id="t")
    assert again == first
    with pytest.raises(InvalidInput, match="request_id"):
        await tenant.client.append_turns("mira", "other", turns, request_id="t")


async def test_a_turn_id_is_not_given_twice(tenant: Tenant) -> None:
    await tenant.client.append_turns("mira", "talk", [Turn("Mira", "Hi.", turn_id="t1")])
    with pytest.raises(InvalidInput, match="t1"):
        await tenant.client.append_turns("mira", "talk", [Turn("Mira", "Ho.", turn_id="t1")])
    with pytest.raises(InvalidInput, match="twice"):
        await tenant.client.append_turns(
            "mira", "talk", [Turn("A", "a", turn_id="t2"), Turn("B", "b", turn_id="t2")]
        )


async def test_what_does_not_exist_is_not_found(tenant: Tenant) -> None:
    with pytest.raises(NotFound):
        await tenant.client.get_memory("mira", "no-such")
    with pytest.raises(NotFound):
        await tenant.client.get_deletion_receipt("mira", "no-such")
    with pytest.raises(NotFound):
        await tenant.client.delete_turns("mira", "no-such")
    with pytest.raises(NotFound):
        await tenant.client.update_memory("mira", "no-such", "A text.")
