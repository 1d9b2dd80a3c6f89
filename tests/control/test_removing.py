"""Updates and deletes: what goes, who is told, and what the receipt says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from inferscale_core.client import DeletionReceipt, PurgeState, Turn
from inferscale_core.errors import InvalidInput, NotFound, RevisionConflict
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2
from tests.control.fake_worker import FakeWorker
from tests.control.harness import Control, Tenant, eventually
from tests.fixtures_postgres import Database


@pytest.fixture
async def worker(control: Control, tenant: Tenant) -> FakeWorker:
    return await control.worker(tenant.model)


async def test_a_delete_is_acknowledged_by_every_holder(tenant: Tenant, worker: FakeWorker) -> None:
    code, serviced, later = await _three_encoded_facts(tenant)
    deleted = await tenant.client.delete_memory("mira", code)
    receipt = deleted.receipt
    assert receipt.is_purged
    assert _states(receipt) == {
        ("row", None): 1,
        ("embedding", None): 1,
        ("dependants", None): 2,
        ("user_cache", worker.worker_id): 1,
        ("arena", worker.worker_id): 3,
        ("host", worker.worker_id): 0,
        ("disk", worker.worker_id): 0,
    }
    assert set(receipt.dependant_memory_ids) == {serviced, later}
    [forgotten] = worker.forget_requests
    assert list(forgotten.fact_ids) == [code]
    assert set(forgotten.dependant_fact_ids) == {serviced, later}
    assert forgotten.user.memory_version == deleted.memory_version
    assert forgotten.user.kv_epoch == 1
    assert await tenant.client.get_deletion_receipt("mira", receipt.receipt_id) == receipt


async def test_dependants_are_encoded_again_without_what_is_gone(
    tenant: Tenant, worker: FakeWorker
) -> None:
    code, serviced, later = await _three_encoded_facts(tenant)
    await tenant.client.delete_memory("mira", code)
    await tenant.encoded("mira", later)
    held = worker.users[f"{tenant.tenant_id}/mira"]
    assert [ref.fact_id for ref in held.chunks[serviced].prefix_facts] == []
    assert [ref.fact_id for ref in held.chunks[later].prefix_facts] == [serviced]


async def test_a_deleted_fact_is_gone_for_every_read(tenant: Tenant, database: Database) -> None:
    added = await tenant.client.add_memory("mira", "The alarm code is 4471.")
    await tenant.client.update_memory("mira", added.memory.memory_id, "The alarm code is 4472.")
    await tenant.client.delete_memory("mira", added.memory.memory_id)
    with pytest.raises(NotFound):
        await tenant.client.get_memory("mira", added.memory.memory_id)
    with pytest.raises(NotFound):
        await tenant.client.delete_memory("mira", added.memory.memory_id)
    assert (await tenant.client.list_memories("mira")).memories == ()
    assert (await tenant.client.search_memories("mira", "alarm code")).memories == ()
    with database.admin() as connection:
        rows = connection.execute(
            "SELECT 1 FROM facts WHERE fact_id = %s", [added.memory.memory_id]
        ).fetchall()
    assert rows == []


async def test_a_repeated_delete_request_gives_its_receipt_again(tenant: Tenant) -> None:
    added = await tenant.client.add_memory("mira", "The alarm code is 4471.")
    first = await tenant.client.delete_memory("mira", added.memory.memory_id, request_id="d")
    again = await tenant.client.delete_memory("mira", added.memory.memory_id, request_id="d")
    assert again == first


async def test_a_fact_that_was_deleted_can_be_stated_anew(tenant: Tenant) -> None:
    added = await tenant.client.add_memory("mira", "The alarm code is 4471.")
    await tenant.client.delete_memory("mira", added.memory.memory_id)
    anew = await tenant.client.add_memory("mira", "The alarm code is 4471.")
    assert anew.memory.memory_id != added.memory.memory_id
    assert not anew.already_existed


async def test_a_holder_that_is_away_stays_pending_until_it_answers(
    tenant: Tenant, worker: FakeWorker
) -> None:
    code, *_ = await _three_encoded_facts(tenant)
    silent = asyncio.Event()

    async def late(request: worker_pb2.ForgetRequest) -> worker_pb2.ForgetResponse:
        await silent.wait()
        return await worker.forget(request)

    worker.on_forget = late
    started_at = time.monotonic()
    deleted = await tenant.client.delete_memory("mira", code)
    assert 0.4 < time.monotonic() - started_at < 2.0
    pending = {line.holder for line in deleted.receipt.lines if line.state is PurgeState.PENDING}
    assert pending == {"user_cache", "arena", "host", "disk"}
    silent.set()
    receipt = await _purged(tenant, deleted.receipt.receipt_id)
    assert _states(receipt)["arena", worker.worker_id] == 3


async def test_pages_that_are_still_read_keep_the_receipt_pending(
    tenant: Tenant, worker: FakeWorker
) -> None:
    code, *_ = await _three_encoded_facts(tenant)
    answers = [worker_pb2.ForgetResponse(user_cache=1, arena_chunks=2, pending_chunks=1)]

    async def pinned(request: worker_pb2.ForgetRequest) -> worker_pb2.ForgetResponse:
        return answers.pop() if answers else worker_pb2.ForgetResponse()

    worker.on_forget = pinned
    deleted = await tenant.client.delete_memory("mira", code)
    assert [line.holder for line in deleted.receipt.lines if line.state is PurgeState.PENDING] == [
        "arena"
    ]
    receipt = await _purged(tenant, deleted.receipt.receipt_id)
    assert _states(receipt)["arena", worker.worker_id] == 2


async def test_a_worker_that_restarts_empty_ends_its_pending_lines(
    tenant: Tenant, worker: FakeWorker
) -> None:
    code, *_ = await _three_encoded_facts(tenant)
    await worker.stop()
    deleted = await tenant.client.delete_memory("mira", code)
    assert not deleted.receipt.is_purged
    await worker.start()
    await worker.join()
    receipt = await tenant.client.get_deletion_receipt("mira", deleted.receipt.receipt_id)
    assert receipt.is_purged


async def test_removing_a_worker_for_good_ends_its_pending_lines(
    control: Control, tenant: Tenant, worker: FakeWorker
) -> None:
    code, *_ = await _three_encoded_facts(tenant)
    await worker.stop()
    deleted = await tenant.client.delete_memory("mira", code)
    assert not deleted.receipt.is_purged
    await control.operator.remove_worker(worker.worker_id)
    receipt = await tenant.client.get_deletion_receipt("mira", deleted.receipt.receipt_id)
    assert receipt.is_purged
    with pytest.raises(NotFound):
        await control.operator.remove_worker(worker.worker_id)


@pytest.mark.parametrize("control", [{"delete_wait_s": 30}], indirect=True)
async def test_every_worker_that_has_held_the_user_is_asked_at_the_same_time(
    control: Control, tenant: Tenant, worker: FakeWorker
) -> None:
    code, *_ = await _three_encoded_facts(tenant)
    await worker.join(draining=True)
    second = await control.worker(tenant.model)
    await eventually(_takes_over(tenant, second))

    both = asyncio.Barrier(2)

    async def together(request: worker_pb2.ForgetRequest) -> worker_pb2.ForgetResponse:
        await both.wait()  # Whoever is asked first answers when the other is asked as well.
        return worker_pb2.ForgetResponse(user_cache=1)

    worker.on_forget = second.on_forget = together
    deleted = await tenant.client.delete_memory("mira", code)
    assert deleted.receipt.is_purged
    assert {line.worker_id for line in deleted.receipt.lines if line.worker_id} == {
        worker.worker_id,
        second.worker_id,
    }


async def test_source_turns_are_named_or_deleted_too(tenant: Tenant) -> None:
    turns = await tenant.client.append_turns("mira", "talk", [Turn("Mira", "It is 4471.")])
    one = await tenant.client.add_memory(
        "mira", "The code is 4471.", conversation_id="talk", turn_ids=turns.turn_ids
    )
    kept = await tenant.client.delete_memory("mira", one.memory.memory_id)
    assert kept.receipt.source_turn_ids == turns.turn_ids
    two = await tenant.client.add_memory(
        "mira", "The code is 4471!", conversation_id="talk", turn_ids=turns.turn_ids
    )
    purged = await tenant.client.delete_memory("mira", two.memory.memory_id, purge_sources=True)
    assert purged.receipt.source_turn_ids == ()
    with pytest.raises(NotFound):
        await tenant.client.delete_turns("mira", "talk", turns.turn_ids)


async def test_an_update_replaces_text_and_date_and_raises_the_revision(tenant: Tenant) -> None:
    moment = datetime(2025, 1, 27, tzinfo=UTC)
    added = await tenant.client.add_memory("mira", "The code is 4471.", occurred_at=moment)
    updated = await tenant.client.update_memory(
        "mira", added.memory.memory_id, "The code is 4472.", expected_revision=1
    )
    assert (updated.memory.text, updated.memory.occurred_at) == ("The code is 4472.", None)
    assert (updated.memory.revision, updated.memory_version) == (2, 2)
    [found] = (await tenant.client.search_memories("mira", "code")).memories
    assert found.memory.text == "The code is 4472."


async def test_an_update_of_a_fact_that_moved_on_says_where_it_is(tenant: Tenant) -> None:
    added = await tenant.client.add_memory("mira", "The code is 4471.")
    memory_id = added.memory.memory_id
    await tenant.client.update_memory("mira", memory_id, "The code is 4472.")
    with pytest.raises(RevisionConflict) as conflict:
        await tenant.client.update_memory(
            "mira", memory_id, "The code is 4473.", expected_revision=1
        )
    assert (conflict.value.expected, conflict.value.actual) == (1, 2)
    assert (await tenant.client.get_memory("mira", memory_id)).text == "The code is 4472."


async def test_of_two_updates_at_once_from_one_revision_one_wins(tenant: Tenant) -> None:
    added = await tenant.client.add_memory("mira", "The code is 4471.")
    outcomes = await asyncio.gather(
        *(
            tenant.client.update_memory(
                "mira", added.memory.memory_id, f"The code is {n}.", expected_revision=1
            )
            for n in range(8)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, RevisionConflict) for outcome in outcomes) == 7


async def test_a_repeated_update_request_is_done_once(tenant: Tenant) -> None:
    added = await tenant.client.add_memory("mira", "The code is 4471.")
    answers = [
        await tenant.client.update_memory(
            "mira", added.memory.memory_id, "The code is 4472.", request_id="u"
        )
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert answers[0].memory.revision == 2


async def test_an_update_to_what_another_fact_states_is_refused(tenant: Tenant) -> None:
    await tenant.client.add_memory("mira", "Mira has a dog.")
    other = await tenant.client.add_memory("mira", "Mira has a cat.")
    with pytest.raises(InvalidInput, match="already has this statement"):
        await tenant.client.update_memory("mira", other.memory.memory_id, "Mira has a dog.")


async def test_an_update_forgets_the_old_revision_and_its_dependants(
    tenant: Tenant, worker: FakeWorker
) -> None:
    code, serviced, later = await _three_encoded_facts(tenant)
    updated = await tenant.client.update_memory("mira", code, "The alarm code is 4472.")
    assert updated.dependants_dropped == 2
    [forgotten] = worker.forget_requests
    assert list(forgotten.fact_ids) == [code]
    assert set(forgotten.dependant_fact_ids) == {serviced, later}
    assert (forgotten.user.memory_version, forgotten.user.kv_epoch) == (4, 1)
    again = await tenant.encoded("mira", code)
    assert (again.revision, again.memory_version) == (2, 4)


async def test_deleting_turns_drops_what_was_encoded_behind_them(
    tenant: Tenant, worker: FakeWorker
) -> None:
    turns = await tenant.client.append_turns("mira", "talk", [Turn("Mira", "It is 4471.")])
    plain = worker.result

    def behind_the_turn(*arguments: object) -> worker_pb2.EncodeResponse:
        result = plain(*arguments)  # type: ignore[arg-type]
        result.prefix_turn_ids.extend(turns.turn_ids)
        return result

    worker.result = behind_the_turn  # type: ignore[method-assign]
    added = await tenant.client.add_memory("mira", "The alarm was serviced.")
    await tenant.encoded("mira", added.memory.memory_id)
    worker.result = plain  # type: ignore[method-assign]
    deleted = await tenant.client.delete_turns("mira", "talk", request_id="dt")
    assert (deleted.turns_deleted, deleted.dependants_dropped) == (1, 1)
    [forgotten] = worker.forget_requests
    assert list(forgotten.turn_ids) == list(turns.turn_ids)
    assert list(forgotten.dependant_fact_ids) == [added.memory.memory_id]
    assert await tenant.client.delete_turns("mira", "talk", request_id="dt") == deleted
    await tenant.encoded("mira", added.memory.memory_id)


async def _three_encoded_facts(tenant: Tenant) -> tuple[str, str, str]:
    """Each is encoded behind the ones before it."""
    texts = ("The alarm code is 4471.", "The alarm was serviced in May.", "May was dry.")
    added = [await tenant.client.add_memory("mira", text) for text in texts]
    for one in added:
        await tenant.encoded("mira", one.memory.memory_id)
    first, second, third = (one.memory.memory_id for one in added)
    return first, second, third


def _states(receipt: DeletionReceipt) -> dict[tuple[str, str | None], int]:
    assert receipt.is_purged
    return {(line.holder, line.worker_id): line.count for line in receipt.lines}


async def _purged(tenant: Tenant, receipt_id: str) -> DeletionReceipt:
    async def is_purged() -> DeletionReceipt | None:
        receipt = await tenant.client.get_deletion_receipt("mira", receipt_id)
        return receipt if receipt.is_purged else None

    return await eventually(is_purged)


def _takes_over(tenant: Tenant, worker: FakeWorker) -> Callable[[], Awaitable[bool]]:
    async def chats() -> bool:
        await tenant.client.chat("mira", "Hello?").answer()
        return bool(worker.generate_requests)

    return chats
