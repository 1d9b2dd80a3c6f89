"""Too few blocks, too small an arena: outputs as without pressure, and nothing lost."""

from __future__ import annotations

import random

import pytest

from inferscale_core.ids import ChunkKey
from inferscale_core.vllm_connector.events import EventKind
from tests.engine_kit import BLOCK, TinyEngine, logprob_differences, random_tokens

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _idle_afterwards(tight: TinyEngine):
    yield
    tight.assert_idle()


def test_two_requests_that_evict_each_other_answer_as_without_pressure(tight: TinyEngine) -> None:
    rng = random.Random(1)
    asks = []
    for name in ("left", "right"):
        chunks = tight.encode_jointly(
            [random_tokens(rng, 60), random_tokens(rng, 70)], f"tenant/{name}"
        )
        prompt = [token for _, part in chunks for token in part] + random_tokens(rng, 30)
        asks.append((prompt, chunks))
    expected = [tight.ask(prompt, max_tokens=150) for prompt, _ in asks]
    params = [tight.injected(chunks) for _, chunks in asks]
    prompts = [prompt for prompt, _ in asks]
    answers = tight.ask_all(list(zip(prompts, params, strict=True)), max_tokens=150)
    # 2 x (160 + 150) tokens want 20 blocks of 15: somebody must be preempted and asked again.
    served = tight.events(EventKind.SERVED)
    times = [[e for e in served if e["handle"] == param.handle] for param in params]
    assert sum(map(len, times)) > 2, "a request was meant to be preempted"
    for event in (event for events in times for event in events):
        assert event["native_tokens"] + event["injected_tokens"] >= 130
    if not tight.scheduler.kv_cache_manager.enable_caching:
        assert all(event["injected_tokens"] == 130 for events in times for event in events)
    for wanted, seen in zip(expected, answers, strict=True):
        assert seen.token_ids == wanted.token_ids
        assert max(logprob_differences(wanted, seen)) <= 1e-3


def test_injected_tokens_leave_room_for_the_next_token(tight: TinyEngine) -> None:
    """Memory up to the last block but one: scheduled, and answered like prefill."""
    rng = random.Random(2)
    limit = 384
    chunks = tight.encode_jointly([random_tokens(rng, limit - BLOCK - 3)], "tenant/full")
    prompt = chunks[0][1] + random_tokens(rng, 20)
    expected = tight.ask(prompt, max_tokens=10)
    answers = tight.ask_all([(prompt, tight.injected(chunks)) for _ in range(3)], max_tokens=10)
    for answer in answers:
        assert answer.token_ids == expected.token_ids


def test_an_encode_preempted_in_its_middle_stores_what_an_undisturbed_one_does(
    tight: TinyEngine,
) -> None:
    rng = random.Random(3)
    tokens = random_tokens(rng, 200)
    quiet = ChunkKey("tenant/quiet/x")
    tight.encode([], quiet, tokens)
    wanted = tight.worker_side.arena.rows[tight.side.directory.get(quiet).slots].clone()
    busy = ChunkKey("tenant/busy/x")
    fillers = [(random_tokens(rng, 100), None) for _ in range(3)]
    params = tight.capture_only(busy, 0, 200)
    with tight.tokens_per_step(48):
        tight.ask_all([*fillers, (tokens, params)], max_tokens=60)
    entry = tight.side.directory.get(busy)
    assert entry is not None
    seen = tight.worker_side.arena.rows[entry.slots]
    assert float((seen - wanted).abs().max()) <= 1e-4


def test_a_full_arena_evicts_the_least_recently_used_and_never_a_pinned_chunk(
    tight: TinyEngine,
) -> None:
    rng = random.Random(4)
    capacity = tight.side.directory._pool.num_pages * 4
    kept = [random_tokens(rng, 50) for _ in range(capacity // 50 + 4)]
    keys = [ChunkKey(f"tenant/many/{index}") for index in range(len(kept))]
    for key, tokens in zip(keys, kept, strict=True):
        tight.encode([], key, tokens)
        if tight.side.directory.get(keys[0]):
            tight.ask(kept[0] + [3], tight.injected([(keys[0], kept[0])]), max_tokens=1)
    directory = tight.side.directory
    assert directory.get(keys[0]) is not None, "used all the time"
    assert directory.get(keys[-1]) is not None, "the newest"
    assert directory.get(keys[1]) is None, "the least recently used"
    assert any(event["reason"] == "evicted" for event in tight.events(EventKind.DROPPED))
    directory.check_conservation()


def test_a_chunk_larger_than_the_arena_is_refused_and_evicts_nothing(tight: TinyEngine) -> None:
    rng = random.Random(5)
    directory = tight.side.directory
    small = ChunkKey("tenant/small/x")
    tight.encode([], small, random_tokens(rng, 30))
    pages = directory._pool.num_pages
    directory._pool.num_pages, held = pages, directory.num_resident
    directory.pin([directory.get(small)])
    others = [entry for entry in list(directory._entries.values()) if entry.key != small]
    directory.pin(others)
    tight.encode([], ChunkKey("tenant/big/x"), random_tokens(rng, 370))
    assert tight.events(EventKind.CAPTURE_REFUSED)[-1]["reason"] == "arena_full"
    assert directory.num_resident == held
    directory.unpin([directory.get(small), *others])


def test_forgetting_everything_leaves_only_zeros(tight: TinyEngine) -> None:
    directory = tight.side.directory
    scopes = {key.rpartition("/")[0] for key in list(directory._entries)}
    for scope in scopes:
        facts = [
            entry.fact.fact_id
            for entry in list(directory._entries.values())
            if entry.key.startswith(scope + "/")
        ]
        tight.forget(facts, scope=scope, version=1)
    assert directory.num_resident == 0
    assert tight.llm.collective_rpc("inferscale_arena_is_zero") == [True]
