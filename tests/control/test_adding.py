"""Adding facts: once, in batches, and again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from inferscale_core.client import Memory, NewMemory, Quotas
from inferscale_core.client.records import BatchAdded
from inferscale_core.errors import AlreadyDeleted, InvalidInput, NotFound, QuotaExceeded
from tests.control.harness import Control, Tenant
from tests.fixtures_postgres import Database


async def test_a_fact_comes_back_as_it_was_stated(tenant: Tenant) -> None:
    moment = datetime(2025, 1, 27, 9, 30, tzinfo=UTC)
    added = await tenant.client.add_memory("mira", " Mira plays the cello.\n", occurred_at=moment)
    read = await tenant.client.get_memory("mira", added.memory.memory_id)
    assert (read.text, read.occurred_at) == (" Mira plays the cello.\n", moment)
    assert (read.revision, read.memory_version, added.memory_version) == (1, 1, 1)
    assert not added.already_existed


async def test_what_is_embedded_is_the_line_that_a_prompt_holds(
    control: Control, tenant: Tenant
) -> None:
    moment = datetime(2025, 1, 27, tzinfo=UTC)
    await tenant.client.add_memory("mira", "Mira plays the cello.", occurred_at=moment)
    await tenant.client.add_memory("mira", "Mira has a dog.")
    assert control.embedder.embedded == [
        "On 27 January 2025: Mira plays the cello.\n",
        "Mira has a dog.\n",
    ]


async def test_one_text_added_32_times_at_once_is_one_fact(
    tenant: Tenant, database: Database
) -> None:
    answers = await asyncio.gather(
        *(tenant.client.add_memory("mira", "Mira plays the cello.") for _ in range(32))
    )
    assert len({answer.memory.memory_id for answer in answers}) == 1
    assert {(answer.memory.text, answer.memory_version) for answer in answers} == {
        ("Mira plays the cello.", 1)
    }
    assert sum(not answer.already_existed for answer in answers) == 1
    assert len(await _all(tenant, "mira")) == 1
    assert _audit_actions(database, tenant) == ["create_tenant", "add_memory"]


async def test_a_request_id_sent_32_times_at_once_is_answered_alike(
    tenant: Tenant, database: Database
) -> None:
    answers = await asyncio.gather(
        *(
            tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
            for _ in range(32)
        )
    )
    assert len({(a.memory.memory_id, a.memory_version) for a in answers}) == 1
    assert _audit_actions(database, tenant) == ["create_tenant", "add_memory"]


async def test_a_replay_gives_the_first_version_after_later_writes(tenant: Tenant) -> None:
    first = await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    await tenant.client.add_memory("mira", "Mira has a dog.")
    again = await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    assert (again.memory.memory_id, again.memory_version) == (first.memory.memory_id, 1)
    assert again.already_existed


async def test_a_replay_costs_no_embedding(control: Control, tenant: Tenant) -> None:
    await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    control.embedder.embedded.clear()
    await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    assert control.embedder.embedded == []


@pytest.mark.parametrize(
    ("user_id", "text"), [("mira", "Mira has a dog."), ("robin", "Mira plays the cello.")]
)
async def test_a_request_id_with_other_content_is_refused_and_writes_nothing(
    tenant: Tenant, database: Database, user_id: str, text: str
) -> None:
    await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    with pytest.raises(InvalidInput) as refused:
        await tenant.client.add_memory(user_id, text, request_id="r1")
    assert refused.value.field == "request_id"
    assert [m.text for m in await _all(tenant, "mira")] == ["Mira plays the cello."]
    assert await _all(tenant, "robin") == []
    assert _audit_actions(database, tenant) == ["create_tenant", "add_memory"]


async def test_a_request_id_of_an_add_cannot_be_used_for_a_delete(tenant: Tenant) -> None:
    added = await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    with pytest.raises(InvalidInput, match="request_id"):
        await tenant.client.delete_memory("mira", added.memory.memory_id, request_id="r1")
    assert len(await _all(tenant, "mira")) == 1


async def test_a_replay_after_the_delete_says_that_the_fact_is_deleted(tenant: Tenant) -> None:
    added = await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    await tenant.client.delete_memory("mira", added.memory.memory_id)
    with pytest.raises(AlreadyDeleted) as deleted:
        await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    assert deleted.value.fact_id == added.memory.memory_id
    assert await _all(tenant, "mira") == []


async def test_nothing_kept_for_replay_holds_text(tenant: Tenant, database: Database) -> None:
    await tenant.client.add_memory("mira", "Mira plays the cello.", request_id="r1")
    await tenant.client.batch_add_memories("mira", [NewMemory("Mira has a dog."), NewMemory("")])
    with database.admin() as connection:
        rows = connection.execute("SELECT to_jsonb(requests)::text FROM requests").fetchall()
        jobs = connection.execute("SELECT args::text FROM procrastinate_jobs").fetchall()
        audit = connection.execute("SELECT to_jsonb(audit)::text FROM audit").fetchall()
    kept = str(rows + jobs + audit)
    assert "r1" in kept
    assert "cello" not in kept
    assert "dog" not in kept


async def test_bad_items_of_a_batch_are_refused_alone(tenant: Tenant) -> None:
    items = [NewMemory(f"Fact number {n}.") for n in range(50)]
    items[7] = NewMemory("x" * 40_000)
    items[21] = NewMemory("")
    items[49] = NewMemory(" \n\t​ ")
    added = await tenant.client.batch_add_memories("mira", items)
    refused = {n: item.error for n, item in enumerate(added.items) if item.error}
    assert {n: str(error) for n, error in refused.items()} == {
        7: "memories[7].text: 40000 characters; at most 8000 are allowed",
        21: "memories[21].text: is empty; must be 1 to 8000 characters",
        49: "memories[49].text: is only white space",
    }
    stored = [item.memory.text for item in added.items if item.memory]
    assert stored == [item.text for n, item in enumerate(items) if n not in refused]
    assert [m.text for m in await _all(tenant, "mira")] == stored
    assert added.memory_version == 47


async def test_a_batch_is_replayed_item_by_item(tenant: Tenant, database: Database) -> None:
    items = [NewMemory("One."), NewMemory(""), NewMemory("Two."), NewMemory("One.")]
    first = await tenant.client.batch_add_memories("mira", items, request_id="b1")
    assert [item.already_existed for item in first.items] == [False, False, False, True]
    removed = first.items[2].memory
    assert removed is not None
    await tenant.client.delete_memory("mira", removed.memory_id)
    again = await tenant.client.batch_add_memories("mira", items, request_id="b1")
    assert again.memory_version == first.memory_version
    assert _memory_ids(again)[0] == _memory_ids(first)[0]
    assert str(again.items[1].error) == str(first.items[1].error)
    assert again.items[2].error is not None
    assert again.items[2].error.code == "already_deleted"
    assert _audit_actions(database, tenant).count("batch_add_memories") == 1


async def test_a_vector_that_cannot_be_compared_refuses_its_item_alone(tenant: Tenant) -> None:
    items = [NewMemory("One."), NewMemory("poison"), NewMemory("Two.")]
    added = await tenant.client.batch_add_memories("mira", items)
    assert [bool(item.memory) for item in added.items] == [True, False, True]
    assert "zero" in str(added.items[1].error)
    with pytest.raises(InvalidInput, match="zero"):
        await tenant.client.add_memory("mira", "poison")


async def test_a_fact_beyond_the_embedders_window_is_refused_with_both_numbers(
    tenant: Tenant,
) -> None:
    with pytest.raises(InvalidInput, match="102 tokens; the embedder's window is 64") as refused:
        await tenant.client.add_memory("mira", "word " * 100)
    assert refused.value.field == "memory.text"


async def test_quotas_are_enforced_one_item_at_a_time(control: Control) -> None:
    tenant = await control.tenant(quotas=Quotas(max_facts=3, max_facts_per_user=2))
    added = await tenant.client.batch_add_memories("mira", [NewMemory(t) for t in "ABC"])
    assert [item.error and item.error.code for item in added.items] == [
        None,
        None,
        "quota_exceeded",
    ]
    await tenant.client.add_memory("robin", "A")
    with pytest.raises(QuotaExceeded) as exceeded:
        await tenant.client.add_memory("robin", "B")
    assert (exceeded.value.quota, exceeded.value.limit) == ("max_facts", 3)
    await tenant.client.delete_memory("mira", added.items[0].memory.memory_id)
    await tenant.client.add_memory("robin", "B")


async def test_a_source_turn_must_exist(tenant: Tenant) -> None:
    with pytest.raises(NotFound, match="turn"):
        await tenant.client.add_memory("mira", "A fact.", conversation_id="c", turn_ids=["t1"])


async def test_an_item_is_refused_with_the_error_that_one_call_would_raise(
    control: Control,
) -> None:
    tenant = await control.tenant(quotas=Quotas(max_facts=3, max_facts_per_user=1))
    of_nothing = NewMemory("A fact.", conversation_id="c", turn_ids=["t1"])
    items = [of_nothing, NewMemory("A"), NewMemory("B")]
    added = await tenant.client.batch_add_memories("mira", items, request_id="b1")
    no_turn, _, too_many = (item.error for item in added.items)
    assert isinstance(no_turn, NotFound)
    assert (no_turn.kind, no_turn.identifier) == ("turn", "t1")
    assert isinstance(too_many, QuotaExceeded)
    assert (too_many.quota, too_many.limit) == ("max_facts_per_user", 1)
    again = await tenant.client.batch_add_memories("mira", items, request_id="b1")
    assert [item.error and item.error.code for item in again.items] == [
        "not_found",
        None,
        "quota_exceeded",
    ]


def _memory_ids(added: BatchAdded) -> list[str | None]:
    return [item.memory and item.memory.memory_id for item in added.items]


async def _all(tenant: Tenant, user_id: str) -> list[Memory]:
    return [memory async for memory in tenant.client.all_memories(user_id)]


def _audit_actions(database: Database, tenant: Tenant) -> list[str]:
    with database.admin() as connection:
        rows = connection.execute(
            "SELECT action FROM audit WHERE tenant_id = %s ORDER BY audit_id", [tenant.tenant_id]
        ).fetchall()
    return [str(row[0]) for row in rows]
