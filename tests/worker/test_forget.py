"""What is left on a worker after a delete: nothing of the fact, and nothing that saw it."""

from __future__ import annotations

import asyncio

import pytest

from inferscale_core.ids import FactId
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.pages import PagePool
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.deletion import Holder
from inferscale_core.memory.recipes import Recipe
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import RequestParams
from services.control.worker_messages import purge_from_proto
from services.worker.convert import purged_to_proto
from services.worker.forget import Purged
from tests.worker.conftest import FakeWorker, MakeWorker
from tests.worker.test_encode import encode, fill, keys


async def forget(worker: FakeWorker, *fact_ids: str, dependants: tuple[str, ...] = ()) -> Purged:
    return await worker.parts.forget(
        worker.control.at(),
        [FactId(fact_id) for fact_id in fact_ids],
        [FactId(fact_id) for fact_id in dependants],
        [],
    )


def facts_with_chunks(worker: FakeWorker) -> set[str]:
    chunks = worker.mirror.of_scope(worker.control.at().scope)
    return {chunk.fact.fact_id for chunk in chunks if chunk.fact}


async def test_a_delete_drops_the_fact_and_all_that_saw_it_and_counts_them(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    worker.control.remove("f1")
    purged = await forget(worker, "f1")
    left = facts_with_chunks(worker)
    assert "f1" not in left
    assert purged.user_cache == 1
    assert purged.chunks == 8 - len(left)
    assert purged.dependants == purged.chunks - 1 > 0
    assert purged.pending == {}
    assert {chunk.key for chunk in worker.mirror.of_scope(worker.control.at().scope)} <= keys(
        worker
    )


async def test_after_encoding_again_the_user_equals_one_who_never_had_the_fact(
    worker: FakeWorker, make_worker: MakeWorker
) -> None:
    fill(worker)
    await encode(worker)
    worker.control.remove("f1")
    await forget(worker, "f1")
    await encode(worker)
    fresh = make_worker()
    fill(fresh)
    fresh.control.user().facts.pop("f1")
    await encode(fresh)
    scope = worker.control.at().scope
    assert {c.key for c in worker.mirror.of_scope(scope)} == {
        c.key for c in fresh.mirror.of_scope(scope)
    }


async def test_asked_again_nothing_more_is_counted(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    worker.control.remove("f1")
    await forget(worker, "f1")
    assert await forget(worker, "f1") == Purged()


async def test_a_user_that_is_not_cached_loses_their_chunks_too(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    worker.parts.users.drop(worker.control.at().scope)
    worker.control.remove("f0")
    purged = await forget(worker, "f0", dependants=("f3",))
    assert purged.user_cache == 0
    assert purged.chunks > 1
    assert {"f0", "f3"}.isdisjoint(facts_with_chunks(worker))


async def test_a_reader_whose_link_was_evicted_is_found_by_the_workers_own_records(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    # f1 <- f2 <- f4: with f2's chunk gone the engine cannot follow the chain.
    assert "f1" in {ref.fact_id for ref in snapshot.specs[FactId("f2")].prefix_facts}
    chain = [i for i, s in snapshot.specs.items() if "f2" in {r.fact_id for r in s.prefix_facts}]
    assert chain
    worker.engine.lose(snapshot.specs[FactId("f2")].key)
    worker.control.remove("f1")
    await forget(worker, "f1")
    assert not set(chain) & facts_with_chunks(worker)


async def test_a_reader_is_found_though_a_chat_has_brought_the_copy_beyond_the_delete(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    before = await worker.parts.users.at_least(worker.control.at())
    worker.engine.evict(before.specs[FactId("f1")].key)
    worker.control.remove("f1")
    after = await worker.parts.users.at_least(worker.control.at())
    saw = {i for i, spec in after.specs.items() if spec.key != before.specs[i].key}
    assert saw & facts_with_chunks(worker)
    await forget(worker, "f1")
    assert not saw & facts_with_chunks(worker)


async def test_chunks_that_saw_a_deleted_turn_are_dropped(make_worker: MakeWorker) -> None:
    worker = make_worker(Recipe("w", with_header=False, num_turns=2))
    for number in range(6):
        worker.control.add_turn(f"t{number}", number, f"turn number {number}")
    worker.control.add("near", "A fact", turn_ids=("t2",))
    worker.control.add("far", "Another fact", turn_ids=("t5",))
    await encode(worker)
    worker.control.remove("t1")
    purged = await worker.parts.forget(worker.control.at(), [], [], ["t1"])  # type: ignore[list-item]
    assert (purged.chunks, purged.dependants) == (1, 1)
    assert facts_with_chunks(worker) == {"far"}


async def test_pages_that_are_being_read_are_pending_until_their_reader_ends(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    key = snapshot.specs[FactId("f1")].key
    entry = worker.engine.directory.get(key)
    assert entry is not None
    worker.engine.directory.pin([entry])
    worker.control.remove("f1")
    assert (await forget(worker, "f1")).pending == {Tier.GPU: 1}
    assert (await forget(worker, "f1")).pending == {Tier.GPU: 1}
    worker.engine.directory.unpin([entry])
    worker.engine.emit(EventKind.ZEROED, key=key, tier="gpu")
    assert (await forget(worker, "f1")).pending == {}


async def test_a_forget_that_is_cut_off_leaves_the_count_of_waiting_pages_right(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(worker)
    await encode(worker)
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    first, second = (snapshot.specs[FactId(fact_id)].key for fact_id in ("f1", "f0"))
    pinned = [e for key in (first, second) if (e := worker.engine.directory.get(key))]
    worker.engine.directory.pin(pinned)
    schedule = worker.engine._schedule

    def cut_off(params: RequestParams) -> None:
        schedule(params)
        raise asyncio.CancelledError

    worker.control.remove("f1")
    with monkeypatch.context() as patched:
        patched.setattr(worker.engine, "_schedule", cut_off)
        with pytest.raises(asyncio.CancelledError):
            await forget(worker, "f1")
    worker.engine.directory.unpin(pinned[:1])
    worker.engine.emit(EventKind.ZEROED, key=first, tier="gpu")
    worker.control.remove("f0")
    assert (await forget(worker, "f0")).pending == {Tier.GPU: 1}


async def test_without_control_the_whole_copy_of_the_user_is_dropped(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    worker.control.remove("f1")
    worker.control.is_down = True
    purged = await forget(worker, "f1")
    assert purged.user_cache == 1
    assert worker.parts.users.peek(worker.control.at().scope) is None
    assert "f1" not in facts_with_chunks(worker)


async def test_an_engine_that_does_not_acknowledge_is_no_purge(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inferscale_core.errors import Unavailable
    from services.worker import forget as module

    monkeypatch.setattr(module, "ACKNOWLEDGE_WAIT_S", 0.01)
    monkeypatch.setattr(worker.reports, "record", lambda event: None)
    with pytest.raises(Unavailable, match="not acknowledged"):
        await forget(worker, "f1")


async def test_copies_in_every_tier_are_counted_and_reach_the_receipt(worker: FakeWorker) -> None:
    """One copy to the host is on its way: both its ends are pending."""
    directory = ChunkDirectory(PagePool(2000, 4), PagePool(2000, 4))
    worker.engine.directory = directory
    fill(worker)
    await encode(worker)
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    key = snapshot.specs[FactId("f1")].key
    for entry in directory.of_scope(worker.control.at().scope):
        assert entry.gpu is not None
        transfer = directory.begin_transfer(entry, entry.gpu, Tier.HOST)
        assert transfer is not None
        if entry.key == key:
            in_flight = transfer
        else:
            directory.end_transfer(transfer, succeeded=True)
    worker.control.remove("f1")
    purged = await forget(worker, "f1")
    assert purged.copies == {Tier.GPU: purged.chunks, Tier.HOST: purged.chunks}
    assert purged.pending == {Tier.GPU: 1, Tier.HOST: 1}
    received = purge_from_proto(purged_to_proto(purged))
    assert received.dropped[Holder.ARENA] == received.dropped[Holder.HOST] == purged.chunks
    assert received.pending == {Holder.ARENA, Holder.HOST}
    directory.end_transfer(in_flight, succeeded=True)
    for room in directory.rooms.values():
        for place in room.drain_freed():
            if place.is_reported:
                worker.engine.emit(EventKind.ZEROED, key=place.entry.key, tier=place.tier)
    assert (await forget(worker, "f1")).pending == {}
