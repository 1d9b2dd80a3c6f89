"""Malformed parameters, missing chunks, forgets and aborts at every moment, on a real engine."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import torch

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import MAX_SPANS, Capture, RequestParams
from tests.engine_kit import BLOCK, TinyEngine, logprob_differences, random_tokens

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _idle_afterwards(llama: TinyEngine):
    yield
    llama.assert_idle()


def raw(engine: TinyEngine, prompt: list[int], wire: Any) -> Any:
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0, max_tokens=2, ignore_eos=True, detokenize=False,
        extra_args={"kv_transfer_params": wire},
    )  # fmt: skip
    prompts = [{"prompt_token_ids": prompt, "cache_salt": engine.handle()}]
    return engine.llm.generate(prompts, sampling, use_tqdm=False)[0]


def packed(**fields: Any) -> dict[str, Any]:
    return {"inferscale": msgspec.msgpack.encode({"handle": "x", **fields})}


def spans(keys: list[str], *counts: int) -> dict[str, Any]:
    return packed(span_keys=keys, span_tokens=counts)


def capture(**fields: Any) -> dict[str, Any]:
    whole = {"key": "a/b/c", "start": 40, "num_tokens": 10, "seen": 0, "planned_version": 0}
    return packed(capture={**whole, "fact": {"fact_id": "f", "revision": 1}, **fields})


MALFORMED = {
    "no bytes": {"inferscale": 7},
    "a mapping": {"inferscale": {"handle": "x"}},
    "bytes that are no message": {"inferscale": b"\xc1"},
    "a message cut off": {"inferscale": spans(["k"], 5)["inferscale"][:-1]},
    "not a mapping": {"inferscale": msgspec.msgpack.encode(["x"])},
    "no handle": {"inferscale": msgspec.msgpack.encode({"span_keys": [], "span_tokens": []})},
    "spans is a string": packed(span_keys="k", span_tokens=[5]),
    "a span of no tokens": spans(["k"], 0),
    "a span of endless tokens": spans(["k"], 2**64 - 1),
    "a span without a name": spans([""], 5),
    "counts as text": packed(span_keys=["k"], span_tokens=["5"]),
    "counts as bytes": packed(span_keys=["k"], span_tokens=b"\5\0\0\0"),
    "a span without a count": spans(["k"]),
    "more spans than there may be": spans(["k"] * (MAX_SPANS + 1), *[1] * (MAX_SPANS + 1)),
    "spans longer than the prompt": spans(["k"], 10000),
    "spans as long as the prompt": spans(["k"], 50),
    "one key twice": spans(["k", "k"], 5, 5),
    "a capture beyond the prompt": capture(num_tokens=40),
    "a capture of nothing": capture(num_tokens=0),
    "a capture that saw more than there is": capture(seen=1),
    "a capture planned at no time": capture(planned_at=float("nan")),
    "a forget without a scope": packed(forget={"fact_ids": [], "version": 1}),
}


@pytest.mark.parametrize("wire", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_parameters_are_prefilled_as_text_and_reported(
    llama: TinyEngine, wire: dict[str, Any]
) -> None:
    prompt = random_tokens(random.Random(1), 50)
    before = len(llama.events(EventKind.REJECTED))
    output = raw(llama, prompt, wire)
    assert output.outputs[0].token_ids == llama.ask(prompt, max_tokens=2).token_ids
    assert (output.num_cached_tokens or 0) == 0
    rejected = llama.events(EventKind.REJECTED)
    assert len(rejected) == before + 1
    assert rejected[-1]["reason"]


def test_an_unknown_chunk_is_prefilled_and_its_neighbours_in_the_batch_are_not_touched(
    llama: TinyEngine,
) -> None:
    rng = random.Random(2)
    chunks = llama.encode_jointly([random_tokens(rng, 40), random_tokens(rng, 33)])
    tail = random_tokens(rng, 8)
    prompt = [token for _, part in chunks for token in part] + tail
    unknown = RequestParams(llama.handle(), (Span(ChunkKey("t/u/unknown"), 40),))
    half = RequestParams(
        llama.handle(), (Span(chunks[0][0], 40), Span(ChunkKey("t/u/unknown"), 33))
    )
    expected = llama.ask(prompt)
    answers = llama.ask_all([(prompt, unknown), (prompt, llama.injected(chunks)), (prompt, half)])
    assert [answer.cached for answer in answers] == [0, 73, 40]
    for answer in answers:
        assert max(logprob_differences(expected, answer)) <= 1e-3


def test_a_chunk_with_another_number_of_tokens_is_not_injected(llama: TinyEngine) -> None:
    rng = random.Random(3)
    [(key, part)] = llama.encode_jointly([random_tokens(rng, 40)])
    prompt = part + random_tokens(rng, 20)
    answer = llama.ask(prompt, RequestParams(llama.handle(), (Span(key, 39),)))
    assert answer.cached == 0
    assert max(logprob_differences(llama.ask(prompt), answer)) <= 1e-3


def test_a_chunk_dropped_between_plan_and_step_is_prefilled(llama: TinyEngine) -> None:
    """Dropped while the request waits in the engine's queue, behind the forget."""
    rng = random.Random(4)
    scope = "tenant/dropped"
    chunks = llama.encode_jointly([random_tokens(rng, 20) for _ in range(50)], scope)
    prompt = [token for _, part in chunks for token in part] + random_tokens(rng, 5)
    expected = llama.ask(prompt, max_tokens=2)
    other = llama.encode_jointly([random_tokens(rng, 64)])
    other_prompt = other[0][1] + [7, 8, 9]
    side = llama.side

    handles = [llama.handle() for _ in range(2)]
    engine = llama.engine
    add = engine.add_request
    inputs = [
        (prompt, RequestParams(handles[0], tuple(Span(k, len(p)) for k, p in chunks))),
        (other_prompt, RequestParams(handles[1], (Span(other[0][0], 64),))),
    ]
    for tokens, params in inputs:
        add(
            params.handle,
            {"prompt_token_ids": tokens, "cache_salt": llama.handle()},
            llama.sampling(params, 2),
        )
    # What a concurrent delete does, before the queued requests are scheduled.
    side.directory.forget(scope, [chunks[30][0]], 9)
    outputs = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                outputs[output.request_id.split("-")[0]] = output
    by_handle = {event["handle"]: event for event in llama.events(EventKind.SERVED)}
    assert by_handle[handles[0]]["injected_tokens"] == 30 * 20
    assert by_handle[handles[1]]["injected_tokens"] == 64
    assert list(outputs[handles[0]].outputs[0].token_ids) == expected.token_ids


def test_a_forget_drops_the_chunk_and_all_that_saw_it_and_zeroes_them(llama: TinyEngine) -> None:
    rng = random.Random(5)
    scope = "tenant/forget"
    parts = [random_tokens(rng, 28) for _ in range(4)]
    a, b, c, unrelated = (ChunkKey(f"{scope}/{name}") for name in "abcd")
    llama.encode([], a, parts[0])
    llama.encode([(a, parts[0])], b, parts[1])
    llama.encode([(b, parts[1])], c, parts[2])
    llama.encode([], unrelated, parts[3])
    slots = {key: llama.side.directory.get(key).slots for key in (a, b, c, unrelated)}
    llama.forget([a], scope=scope, version=1)
    forgotten = llama.events(EventKind.FORGOTTEN)[-1]
    assert (forgotten["num_chunks"], forgotten["num_dependants"]) == (3, 2)
    assert forgotten["num_pending"] == 0
    rows = llama.worker_side.arena.rows
    for key in (a, b, c):
        assert llama.side.directory.get(key) is None
        assert not rows[slots[key]].any()
    assert rows[slots[unrelated]].any()
    assert llama.side.directory.get(unrelated) is not None


def test_a_capture_planned_before_a_forget_is_refused(llama: TinyEngine) -> None:
    """The update race: the late encode of an old revision must not be stored."""
    tokens = random_tokens(random.Random(6), 28)
    key = ChunkKey("tenant/race/old-revision")
    llama.forget(["fact"], scope="tenant/race", version=5)
    llama.encode([], key, tokens, fact_id="fact", version=4)
    assert llama.side.directory.get(key) is None
    assert llama.events(EventKind.CAPTURE_REFUSED)[-1]["reason"] == "fenced"
    llama.encode([], key, tokens, fact_id="fact", version=5)
    assert llama.side.directory.get(key) is not None


def test_a_forget_while_the_capture_runs_discards_it_and_zeroes_its_rows(
    llama: TinyEngine,
) -> None:
    tokens = random_tokens(random.Random(7), 28)
    key = ChunkKey("tenant/inflight/x")
    side = llama.side
    build = side.build_step
    slots = []

    def forget_after_building(output: Any) -> Any:
        step = build(output)
        if step.capture:
            slots.extend(step.capture[0].arena_slots)
            side.directory.forget("tenant/inflight", ["fact"], 1)
        return step

    side.build_step = forget_after_building
    try:
        llama.encode([], key, tokens, fact_id="fact")
    finally:
        side.build_step = build
    assert side.directory.get(key) is None
    llama.ask([5, 6, 7])
    assert slots
    assert not llama.worker_side.arena.rows[slots].any()


def test_a_capture_whose_prefix_is_missing_is_refused(llama: TinyEngine) -> None:
    rng = random.Random(8)
    missing = ChunkKey("tenant/prefix/missing")
    key = ChunkKey("tenant/prefix/x")
    llama.encode([(missing, random_tokens(rng, 12))], key, random_tokens(rng, 20))
    assert llama.side.directory.get(key) is None
    assert llama.events(EventKind.CAPTURE_REFUSED)[-1]["reason"] == "missing_prefix"


@pytest.mark.parametrize("steps_before_abort", [0, 1, 2])
def test_aborts_before_allocation_after_load_and_while_decoding(
    llama: TinyEngine, steps_before_abort: int
) -> None:
    rng = random.Random(9)
    chunks = llama.encode_jointly([random_tokens(rng, 70)])
    prompt = chunks[0][1] + random_tokens(rng, 30)
    key = ChunkKey(f"tenant/abort/{steps_before_abort}")
    capture = Capture(key, 70, 30, (chunks[0][0],), FactRef(key, 1), 0)  # type: ignore[arg-type]
    engine = llama.engine
    for params in (
        RequestParams("abort-inject", (Span(chunks[0][0], 70),)),
        RequestParams("abort-capture", (Span(chunks[0][0], 70),), capture),
    ):
        engine.add_request(
            params.handle,
            {"prompt_token_ids": prompt, "cache_salt": llama.handle()},
            llama.sampling(params, 50),
        )
    with llama.tokens_per_step(24):
        for _ in range(steps_before_abort):
            engine.step()
        engine.abort_request(["abort-inject", "abort-capture"])
        llama.ask([9, 9, 9])
    assert llama.ask(prompt, llama.injected(chunks)).cached == 70


def test_plain_requests_never_hit_injected_blocks_of_another_salt(llama: TinyEngine) -> None:
    """Approximate KV must not leak: another tenant's plain request with the same tokens."""
    rng = random.Random(10)
    parts = [random_tokens(rng, 3 * BLOCK), random_tokens(rng, 2 * BLOCK)]
    alone = [(ChunkKey(f"tenant/leak/{i}"), part) for i, part in enumerate(parts)]
    for key, part in alone:
        llama.encode([], key, part)
    prompt = parts[0] + parts[1] + random_tokens(rng, 10)
    exact = llama.ask(prompt)
    approximate = llama.ask(prompt, llama.injected(alone), salt="tenant-a injected")
    again = llama.ask(prompt, llama.injected(alone), salt="tenant-a injected")
    assert again.cached == 5 * BLOCK
    assert max(logprob_differences(exact, approximate)) > 0.01
    for salt in ("tenant-b injected", "tenant-a text"):
        plain = llama.ask(prompt, salt=salt)
        assert plain.cached == 0
        assert max(logprob_differences(exact, plain)) <= 1e-3


def test_a_chunk_forgotten_while_it_is_read_is_zeroed_afterwards_on_an_idle_engine(
    llama: TinyEngine,
) -> None:
    rng = random.Random(11)
    key, tokens = ChunkKey("tenant/read/x"), random_tokens(rng, 40)
    llama.encode([], key, tokens, fact_id="fact")
    slots = llama.side.directory.get(key).slots
    side, build = llama.side, llama.side.build_step

    def forget_after_building(output: Any) -> Any:
        step = build(output)
        if step.inject:
            forgotten = side.directory.forget("tenant/read", ["fact"], 1)
            assert forgotten.pending == {key: (Tier.GPU,)}
        return step

    prompt = tokens + random_tokens(rng, 10)
    expected = llama.ask(prompt)
    side.build_step = forget_after_building
    try:
        answer = llama.ask(prompt, llama.injected([(key, tokens)]))
    finally:
        side.build_step = build
    assert answer.token_ids == expected.token_ids, "the reader saw the whole chunk"
    while side.has_work or side.num_steps_in_flight:
        llama.engine.step()
    assert not llama.worker_side.arena.rows[slots].any()
    assert llama.events(EventKind.ZEROED)[-1] == {"key": key, "tier": "gpu"}


def rows_of(engine: TinyEngine, key: ChunkKey) -> Any:
    return engine.worker_side.arena.rows[engine.side.directory.get(key).slots].clone()


@pytest.mark.parametrize("how", ["deleted", "updated"])
def test_what_is_encoded_again_is_bitwise_what_a_fresh_user_has(
    llama: TinyEngine, how: str
) -> None:
    """B saw A, C saw B. With A gone both are encoded anew, and hold not a bit of it."""
    rng = random.Random(12)
    a, b, c, new_a = (random_tokens(rng, 28) for _ in range(4))
    user, fresh = f"tenant/again-{how}", f"tenant/fresh-{how}"

    def store(scope: str, name: str, tokens: list[int], *sees: tuple[ChunkKey, list[int]]) -> Any:
        key = ChunkKey(f"{scope}/{name}")
        llama.encode(list(sees), key, tokens, fact_id=name[0], version=9)
        return key, tokens

    old_a = store(user, "a-1", a)
    old_b = store(user, "b-saw-a", b, old_a)
    old_c = store(user, "c-saw-b", c, old_b)
    before = [rows_of(llama, key) for key, _ in (old_b, old_c)]
    llama.forget(["a"], scope=user, version=9)
    for key, _ in (old_a, old_b, old_c):
        assert llama.side.directory.get(key) is None

    again, never = [], []
    for scope, stored in ((user, again), (fresh, never)):
        new_b = store(scope, "b", b)
        new_c = store(scope, "c", c, new_b)
        stored += [new_b, new_c]
        if how == "updated":
            stored.append(store(scope, "a-2", new_a, new_b, new_c))
    for (key, _), (other, _), old in zip(again, never, [*before, None], strict=False):
        assert torch.equal(rows_of(llama, key), rows_of(llama, other))
        assert old is None or not torch.equal(rows_of(llama, key), old), "A must have shown"
