"""Encoding a user in waves, on an engine that can be driven into corners."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing

import pytest

from inferscale_core.errors import EngineError, Unavailable
from inferscale_core.ids import FactId
from inferscale_core.memory.recipes import PrefixFacts, Recipe
from inferscale_core.settings import WorkerSettings
from inferscale_core.vllm_connector.events import EventKind
from services.worker.encoding.user import EncodeResult
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.protocol import EngineRequest
from tests.worker.conftest import FakeWorker, MakeWorker

TEXTS = [
    "Robin keeps a spare key at the office",
    "The alarm code is 4471",
    "The alarm was serviced in May",
    "Robin has a dog named Biscuit",
    "Biscuit is afraid of the alarm",
    "The office is on Harbour Street",
    "Harbour Street floods in May",
    "Robin takes the ferry to the office",
]


def fill(worker: FakeWorker, user_id: str = "robin") -> None:
    for number, text in enumerate(TEXTS):
        worker.control.add(f"f{number}", text, user_id)


async def encode(worker: FakeWorker, user_id: str = "robin") -> list[EncodeResult]:
    return [result async for result in worker.parts.encode(worker.control.at(user_id))]


def keys(worker: FakeWorker) -> set[str]:
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    return {spec.key for spec in snapshot.specs.values()}


async def test_every_fact_is_encoded_behind_its_resident_prefix(worker: FakeWorker) -> None:
    fill(worker)
    results = await encode(worker)
    assert {r.fact.fact_id for r in results} == {f"f{n}" for n in range(8)}
    assert all(r.reason is None and not r.already_resident for r in results)
    seen: set[str] = set()
    for capture in worker.engine.captures():
        assert set(capture.prefix_keys) <= seen, "a chunk was asked for before its prefix"
        seen.add(capture.key)
    assert keys(worker) <= seen


async def test_a_request_holds_header_neighbours_and_fact_and_injects_all_but_the_fact(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    request = worker.engine.requests[-1]
    capture = request.params.capture
    assert capture is not None
    assert capture.start == sum(span.num_tokens for span in request.params.spans)
    assert len(request.token_ids) == capture.start + capture.num_tokens
    assert [span.key for span in request.params.spans] == [
        worker.parts.rules.header_key,
        *capture.prefix_keys,
    ]
    salts = [r.cache_salt for r in worker.engine.requests]
    assert len(set(salts)) == len(salts), "a salt was used twice"


async def test_facts_that_do_not_wait_for_each_other_share_a_wave(make_worker: MakeWorker) -> None:
    alone = Recipe("alone")
    worker = make_worker(alone)
    fill(worker)
    await encode(worker)
    assert worker.engine.max_running == len(TEXTS)


async def test_facts_seen_as_text_are_prefilled_and_waited_for_by_nobody(
    make_worker: MakeWorker,
) -> None:
    worker = make_worker(Recipe("text", num_neighbours=2, facts_as=PrefixFacts.TEXT))
    fill(worker)
    results = await encode(worker)
    assert worker.engine.max_running == len(TEXTS), "one wave"
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    rules = worker.parts.rules
    for request in worker.engine.requests[1:]:
        capture = request.params.capture
        assert capture is not None
        assert capture.fact is not None
        seen = snapshot.specs[capture.fact.fact_id].prefix_facts
        texts = [snapshot.facts[ref.fact_id].token_ids for ref in seen]
        expected = [token for text in texts for token in text]
        assert [span.key for span in request.params.spans] == [rules.header_key]
        assert list(request.token_ids[rules.header_tokens : capture.start]) == expected
    assert {r.fact.fact_id: r.saw_as_text for r in results} == {
        fact_id: bool(spec.prefix_facts) for fact_id, spec in snapshot.specs.items()
    }


async def test_chains_of_a_bounded_depth_take_as_many_waves_at_most(
    make_worker: MakeWorker,
) -> None:
    worker = make_worker(Recipe("deep", num_neighbours=3, max_depth=2))
    fill(worker)
    results = await encode(worker)
    assert all(result.reason is None for result in results)
    snapshot = worker.parts.users.peek(worker.control.at().scope)
    assert snapshot is not None
    depths = [spec.depth for spec in snapshot.specs.values()]
    assert set(depths) == {1, 2}
    assert worker.engine.max_running >= depths.count(1), "those that begin a chain go together"


async def test_what_is_resident_is_reported_at_once_and_not_encoded(worker: FakeWorker) -> None:
    fill(worker)
    first = await encode(worker)
    num_requests = len(worker.engine.requests)
    again = await encode(worker)
    assert len(worker.engine.requests) == num_requests
    assert all(result.already_resident for result in again)
    assert {r.chunk_digest for r in again} == {r.chunk_digest for r in first}


async def test_encode_requests_in_the_engine_are_bounded_over_all_users(
    make_worker: MakeWorker,
) -> None:
    alone = Recipe("alone")
    worker = make_worker(alone, WorkerSettings(encode_batch=3))
    for user_id in ("robin", "kim", "lee"):
        fill(worker, user_id)
    results = await asyncio.gather(*(encode(worker, u) for u in ("robin", "kim", "lee")))
    assert [len(result) for result in results] == [8, 8, 8]
    assert worker.engine.max_running == 3


async def test_two_runs_of_one_user_encode_each_chunk_once(worker: FakeWorker) -> None:
    fill(worker)
    await asyncio.gather(encode(worker), encode(worker))
    captured = [capture.key for capture in worker.engine.captures()]
    assert len(captured) == len(set(captured))


async def test_a_fact_that_is_too_long_fails_and_the_others_do_not(worker: FakeWorker) -> None:
    fill(worker)
    worker.control.add("long", "word " * 200)
    results = {r.fact.fact_id: r.reason for r in await encode(worker)}
    reason = results.pop(FactId("long"))
    assert reason is not None
    assert re.fullmatch(r"too_long: [2-9]\d\d tokens; at most 120 fit", reason)
    assert set(results.values()) == {None}


async def test_a_prefix_evicted_under_a_run_is_encoded_again(worker: FakeWorker) -> None:
    fill(worker)
    evicted: list[str] = []

    def evict_once(request: EngineRequest) -> None:
        capture = request.params.capture
        if capture and capture.prefix_keys and not evicted:
            evicted.append(capture.prefix_keys[0])
            worker.engine.evict(capture.prefix_keys[0])

    worker.engine.before = evict_once
    results = await encode(worker)
    assert all(result.reason is None for result in results)
    assert keys(worker) <= {chunk.key for chunk in worker.mirror}
    assert evicted


async def test_an_eviction_that_the_mirror_missed_is_found_out(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    scope = worker.control.at().scope
    for chunk in worker.mirror.of_scope(scope)[:3]:
        worker.engine.lose(chunk.key)
    for number in range(20):
        worker.control.add(f"new{number}", f"{TEXTS[number % 8]} number {number}")
    results = await encode(worker)
    assert all(result.reason is None for result in results)


async def test_an_update_under_a_run_discards_what_is_late(worker: FakeWorker) -> None:
    fill(worker)
    updated = False

    def update_once(request: EngineRequest) -> None:
        nonlocal updated
        capture = request.params.capture
        if capture and capture.fact and capture.fact.fact_id == "f2" and not updated:
            updated = True
            worker.engine.hold.clear()
            tasks.append(asyncio.create_task(release()))

    async def release() -> None:
        worker.control.add("f1", "The alarm code is 9920")
        user = worker.control.at()
        forgetting = asyncio.create_task(worker.parts.forget(user, [FactId("f1")], [], []))
        await worker.parts.users.at_least(user)
        worker.engine.hold.set()
        await forgetting

    tasks: list[asyncio.Task[None]] = []
    worker.engine.before = update_once
    results = [r for r in await encode(worker) if r.fact.fact_id == "f1"]
    await asyncio.gather(*tasks)
    assert results[-1].fact.revision == 2
    final = {r.fact: r for r in await encode(worker)}
    assert all(r.reason is None for r in final.values())
    assert {r.fact.revision for r in final.values() if r.fact.fact_id == "f1"} == {2}
    assert {c.key for c in worker.mirror.of_scope(worker.control.at().scope)} == keys(worker)


async def test_a_capture_planned_before_a_forget_is_refused_and_planned_anew(
    worker: FakeWorker,
) -> None:
    fill(worker)
    forgotten = False

    def forget_once(request: EngineRequest) -> None:
        nonlocal forgotten
        capture = request.params.capture
        if capture and capture.fact and not forgotten:
            forgotten = True
            worker.control.remove("f7")
            worker.engine.directory.forget(
                worker.control.at().scope, [FactId("f7")], worker.control.user().version
            )
            tasks.append(asyncio.create_task(worker.parts.users.at_least(worker.control.at())))

    tasks: list[asyncio.Task[object]] = []
    worker.engine.before = forget_once
    results = await encode(worker)
    await asyncio.gather(*tasks)
    assert {r.fact.fact_id for r in results} == {f"f{n}" for n in range(7)}
    assert all(r.reason is None for r in results)


async def test_a_user_larger_than_the_arena_keeps_the_earliest_facts_and_fails_the_rest(
    make_worker: MakeWorker,
) -> None:
    worker = make_worker(num_pages=75)
    for number in range(30):
        worker.control.add(f"f{number:02}", TEXTS[number % 8] + f" {number}")
    results = {r.fact.fact_id: r.reason for r in await encode(worker)}
    assert len(results) == 30
    reasons = [results[FactId(f"f{n:02}")] for n in range(30)]
    num_stored = reasons.count(None)
    assert 0 < num_stored < 30
    assert reasons == [None] * num_stored + ["arena_full"] * (30 - num_stored)
    assert worker.engine.directory.stats.evictions == 0, "a user evicted its own chunks"


async def test_an_arena_filled_by_pinned_chunks_fails_instead_of_waiting_for_ever(
    make_worker: MakeWorker,
) -> None:
    worker = make_worker(num_pages=75)
    worker.control.add("f0", TEXTS[0])
    await encode(worker)
    directory = worker.engine.directory
    entry = directory.get(next(iter(keys(worker))))  # type: ignore[arg-type]
    assert entry is not None
    directory.pin([entry])
    for number in range(30):
        worker.control.add(f"kim{number}", TEXTS[number % 8] + f" {number}", "kim")
    async with asyncio.timeout(20):
        results = await encode(worker, "kim")
    assert {r.reason for r in results} <= {None, "arena_full", "prefix_missing"}
    assert "arena_full" in {r.reason for r in results}
    assert directory.get(entry.key) is entry


async def test_a_lost_event_makes_the_worker_encode_again_and_learn_of_duplicates(
    worker: FakeWorker,
) -> None:
    fill(worker)
    await encode(worker)
    num_chunks = len(worker.mirror)
    worker.engine.emit(EventKind.ZEROED, key="x/y/z", tier="gpu", lost=True)
    worker.engine.emit(EventKind.ZEROED, key="x/y/z", tier="gpu")
    assert worker.mirror.num_gaps == 1
    assert len(worker.mirror) == 0
    results = await encode(worker)
    assert all(result.reason is None for result in results)
    assert len(worker.mirror) == num_chunks


async def test_leaving_a_run_aborts_what_it_has_in_the_engine(worker: FakeWorker) -> None:
    fill(worker)
    async with aclosing(worker.parts.encode(worker.control.at())) as results:
        await anext(results)
        worker.engine.hold.clear()
        await asyncio.sleep(0)
    assert worker.engine.num_running == 0
    worker.engine.hold.set()
    assert all(r.reason is None for r in await encode(worker))


async def test_one_request_that_fails_costs_its_fact_and_those_behind_it(
    worker: FakeWorker,
) -> None:
    fill(worker)

    def fail(request: EngineRequest) -> None:
        capture = request.params.capture
        if capture and capture.fact and capture.fact.fact_id == "f1":
            raise EngineError("out of luck")

    worker.engine.before = fail
    reasons = {r.fact.fact_id: r.reason for r in await encode(worker)}
    assert reasons[FactId("f0")] is None
    assert reasons[FactId("f1")] == "engine"
    assert reasons[FactId("f2")] == "prefix_missing"
    assert len(reasons) == 8


async def test_a_dead_engine_ends_the_run(worker: FakeWorker) -> None:
    fill(worker)

    def die(request: EngineRequest) -> None:
        raise Unavailable("the engine has died")

    await worker.parts.header.ensure()
    worker.engine.before = die
    with pytest.raises(Unavailable):
        await encode(worker)
    assert worker.engine.num_running == 0


async def test_stale_chunks_of_an_update_nobody_told_of_are_dropped(worker: FakeWorker) -> None:
    fill(worker)
    await encode(worker)
    worker.control.add("f1", "The alarm code is 9920")
    await encode(worker)
    scope = worker.control.at().scope
    assert {chunk.key for chunk in worker.mirror.of_scope(scope)} == keys(worker)


async def test_windows_of_turns_are_prefilled_before_the_fact(make_worker: MakeWorker) -> None:
    worker = make_worker(Recipe("w", with_header=False, num_turns=2))
    for number in range(4):
        worker.control.add_turn(f"t{number}", number, f"turn number {number}")
    worker.control.add("f0", TEXTS[0], turn_ids=("t3",))
    (result,) = await encode(worker)
    assert result.prefix_turn_ids == ("t1", "t2")
    request = worker.engine.requests[-1]
    assert request.params.spans == ()
    assert request.params.capture is not None
    assert request.params.capture.start > 0


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [("outside_window", "outside_window"), ("another_user", "engine")],
    ids=["not whole", "another user's"],
)
async def test_a_fact_that_the_engine_will_never_keep_fails_at_once(
    worker: FakeWorker, refusal: str, reason: str
) -> None:
    worker.control.add("f0", TEXTS[0])
    refuse = worker.engine._refusal
    await worker.parts.header.ensure()
    worker.engine._refusal = lambda capture, is_whole: refusal  # type: ignore[method-assign]
    (result,) = await encode(worker)
    assert result.reason == reason
    assert len(worker.engine.captures()) == 2
    worker.engine._refusal = refuse  # type: ignore[method-assign]


async def test_a_user_of_many_facts_takes_no_more_for_each_chunk_than_one_of_few(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in questions to the mirror: a look at all facts after each chunk asks of each."""
    num_asked = 0
    contains = DirectoryMirror.__contains__

    def counting(mirror: DirectoryMirror, key: object) -> bool:
        nonlocal num_asked
        num_asked += 1
        return contains(mirror, key)

    monkeypatch.setattr(DirectoryMirror, "__contains__", counting)
    asked_by_size = {}
    for size in (20, 200):
        worker = make_worker(settings=WorkerSettings(encode_batch=2), num_pages=20_000)
        for number in range(size):
            worker.control.add(f"f{number:03}", f"Robin counts to {number}")
        num_asked = 0
        assert len(await encode(worker)) == size
        asked_by_size[size] = num_asked / size
    assert asked_by_size[200] <= 1.5 * asked_by_size[20]


async def test_of_a_user_only_so_many_chunks_are_started_as_keep_the_engine_busy(
    make_worker: MakeWorker,
) -> None:
    worker = make_worker(Recipe("alone"), WorkerSettings(encode_batch=2))
    for number in range(30):
        worker.control.add(f"f{number:02}", f"Robin counts to {number}")
    await worker.parts.header.ensure()
    most = 0

    def look(request: EngineRequest) -> None:
        nonlocal most
        most = max(most, worker.parts.encode._encoder.num_waiting())

    worker.engine.before = look
    assert len(await encode(worker)) == 30
    assert worker.engine.max_running == 2
    assert 0 < most <= 2
