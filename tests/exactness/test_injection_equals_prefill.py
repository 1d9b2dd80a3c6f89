"""Jointly encoded chunks, injected, give the log-probabilities of prefill."""

from __future__ import annotations

import random
from statistics import fmean

import numpy as np
import pytest
import torch
from torch import Tensor

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.rope import apply, shift
from tests.engine_kit import (
    BLOCK,
    Answer,
    TinyEngine,
    logprob_differences,
    random_tokens,
    top_gap,
)

pytestmark = pytest.mark.engine

FLOAT32_LIMIT = 1e-3
BFLOAT16_STEP = 2**-5
"""One rounding step of a logit between 4 and 8, as these models have; jointly encoded chunks that
serve where they were computed are bitwise what prefill wrote, so this leaves room for the
engine's own differences between batch shapes only."""
LENGTHS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7)


def assert_equal(
    engine: TinyEngine, expected: Answer, actual: Answer, sliced: Answer | None = None
) -> None:
    """sliced: prefill in the chunks' slices, where half precision may make that differ by more than
    a step: a compiled model's shapes differ in what is rounded between two operations."""
    limit = FLOAT32_LIMIT if engine.dtype == "float32" else BFLOAT16_STEP
    if sliced is not None and engine.dtype != "float32":
        assert max(logprob_differences(sliced, actual)) <= limit
        limit = min(2 * limit, max(limit, *logprob_differences(expected, sliced)))
    assert max(logprob_differences(expected, actual)) <= limit
    if top_gap(expected) > 0.1:
        assert expected.token_ids[0] == actual.token_ids[0]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_chunk_of_any_length_at_a_block_edge(engine: TinyEngine, length: int) -> None:
    rng = random.Random(length)
    chunks = engine.encode_jointly([random_tokens(rng, length)])
    prompt = [*chunks[0][1], *random_tokens(rng, 9)]
    expected = engine.ask(prompt)
    with engine.slices([length]):
        sliced = engine.ask(prompt)
    actual = engine.ask(prompt, engine.injected(chunks))
    assert (expected.cached, sliced.cached, actual.cached) == (0, 0, length)
    assert_equal(engine, expected, actual, sliced)


def test_many_chunks_in_one_request_and_the_control_without_context(engine: TinyEngine) -> None:
    rng = random.Random(1)
    parts = [random_tokens(rng, length) for length in (*LENGTHS, 5, 28)]
    chunks = engine.encode_jointly(parts)
    prompt = [token for part in parts for token in part] + random_tokens(rng, 20)
    expected = engine.ask(prompt)
    with engine.slices(map(len, parts)):
        sliced = engine.ask(prompt)
    actual = engine.ask(prompt, engine.injected(chunks))
    assert actual.cached == sum(map(len, parts))
    assert logprob_differences(sliced, actual) == [0.0] * len(logprob_differences(sliced, sliced))
    if engine.dtype == "float32":  # In half precision, slices of so long a prompt differ by more.
        assert_equal(engine, expected, actual)

    alone = [(ChunkKey(f"tenant/alone/{engine.handle()}"), part) for part in parts]
    for key, part in alone:
        engine.encode([], key, part)
    control = engine.ask(prompt, engine.injected(alone))
    assert fmean(logprob_differences(expected, control)) > 10 * fmean(
        logprob_differences(expected, actual)
    ), "a chunk that saw nothing before it must show, or this test shows nothing"


def test_twenty_prompts_are_what_prefill_in_their_chunks_slices_is(engine: TinyEngine) -> None:
    """In half precision prefill differs from itself by how it is sliced: injected is to the last
    bit what prefill is that is sliced as the chunks are."""
    rng = random.Random(2)
    prompts = []
    for _ in range(20):
        parts = [random_tokens(rng, rng.randrange(1, 60)) for _ in range(4)]
        prompts.append((engine.encode_jointly(parts), random_tokens(rng, rng.randrange(1, 30))))

    whole, by_chunk, injected = [], [], []
    for chunks, tail in prompts:
        prompt = [token for _, part in chunks for token in part] + tail
        whole.append(engine.ask(prompt, max_tokens=1))
        with engine.slices(len(part) for _, part in chunks):
            by_chunk.append(engine.ask(prompt, max_tokens=1))
        injected.append(engine.ask(prompt, engine.injected(chunks), max_tokens=1))

    def mean(left: list[Answer], right: list[Answer]) -> float:
        pairs = zip(left, right, strict=True)
        return fmean(difference for pair in pairs for difference in logprob_differences(*pair))

    assert mean(by_chunk, injected) == 0
    for expected, actual in zip(whole, injected, strict=True):
        if top_gap(expected) > 0.1:
            assert expected.token_ids == actual.token_ids
    if engine.dtype == "float32":
        assert mean(whole, injected) <= FLOAT32_LIMIT


@pytest.mark.parametrize("num_native_blocks", [0, 1, 2])
def test_behind_a_native_prefix_hit(engine: TinyEngine, num_native_blocks: int) -> None:
    rng = random.Random(3)
    parts = [random_tokens(rng, length) for length in (BLOCK - 12, BLOCK + 13, BLOCK - 1)]
    chunks = engine.encode_jointly(parts)
    prompt = [token for part in parts for token in part] + random_tokens(rng, 12)
    expected = engine.ask(prompt)
    with engine.slices(map(len, parts)):
        sliced = engine.ask(prompt)
    salt = engine.handle()
    if num_native_blocks:
        engine.ask(prompt[: num_native_blocks * BLOCK + 3], salt=salt, max_tokens=1)
    actual = engine.ask(prompt, engine.injected(chunks), salt=salt)
    served = engine.side.sink.events
    last = [event.fields for event in served if event.kind == "served"][-1]
    assert last["native_tokens"] == num_native_blocks * BLOCK
    assert last["injected_tokens"] == (3 - num_native_blocks) * BLOCK
    assert_equal(engine, expected, actual, sliced)


def test_into_scattered_blocks_and_in_one_step_with_others(engine: TinyEngine) -> None:
    rng = random.Random(4)
    fillers = [(random_tokens(rng, rng.randrange(1, 200)), None) for _ in range(12)]
    engine.ask_all(fillers, max_tokens=3)
    parts = [random_tokens(rng, length) for length in (40, 70, 3 * BLOCK + 7)]
    chunks = engine.encode_jointly(parts)
    prompt = [token for part in parts for token in part] + random_tokens(rng, 5)
    expected = engine.ask(prompt)
    engine.ask_all(fillers[::-1], max_tokens=2)
    engine.steps.clear()
    together = [
        (prompt, engine.injected(chunks)),
        *fillers[:5],
        (prompt, engine.injected(chunks)),
    ]
    answers = engine.ask_all(together)
    copies = [copy for step in engine.steps for copy in step.inject]
    assert len(copies) == 2
    jumps = [np.abs(np.diff(copy.cache_slots[::BLOCK] // BLOCK)) for copy in copies]
    assert any((jump > 1).any() for jump in jumps), "the blocks were meant to be scattered"
    for answer in (answers[0], answers[-1]):
        assert_equal(engine, expected, answer)


def test_a_chunk_does_not_depend_on_where_it_was_encoded(engine: TinyEngine) -> None:
    """Behind 4,095 tokens or none: moved to one position, the first layer's keys and values are
    the same, since there they depend on the token alone. Checks every rotary kind far out."""
    rng = random.Random(5)
    tokens = random_tokens(rng, 40)
    far_prefix = random_tokens(rng, 4095)
    near, far = (ChunkKey(f"tenant/where/{engine.handle()}") for _ in range(2))
    engine.encode([], near, tokens)
    engine.encode([(ChunkKey("tenant/where/text"), far_prefix)], far, tokens, inject=False)
    assert engine.side.directory.get(far) is None, "its prefix is no chunk, so it must be refused"
    engine.ask(
        far_prefix + tokens, engine.capture_only(far, len(far_prefix), len(tokens)), max_tokens=1
    )
    first, last = (first_and_last_layer(engine, key) for key in (near, far))
    for near_part, far_part in zip(first[0], last[0], strict=True):
        error = float((near_part - far_part).abs().max() / near_part.abs().max())
        assert error <= (1e-4 if engine.dtype == "float32" else 2e-2)
    assert float((first[1][1] - last[1][1]).abs().max()) > 0.01, "later layers saw the prefix"


def first_and_last_layer(
    engine: TinyEngine, key: ChunkKey
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Keys moved to position 0 onwards, and values, in float32."""
    worker, entry = engine.worker_side, engine.side.directory.get(key)
    device = worker.arena.rows.device
    slots = torch.from_numpy(entry.slots).to(device)
    origins = entry.origin + torch.arange(entry.num_tokens, device=device)
    places = torch.arange(entry.num_tokens, device=device)
    parts = []
    for layer in (0, len(worker.arena.layers) - 1):
        stored, value = worker.arena.read_layer(slots, layer)
        moved = apply(shift(worker.tables[layer], origins, places), stored.float())
        parts.append((moved, value.float()))
    return parts[0], parts[1]


def test_nothing_is_left_behind(engine: TinyEngine) -> None:
    """Last of the group: what every test above must leave."""
    engine.assert_idle()
