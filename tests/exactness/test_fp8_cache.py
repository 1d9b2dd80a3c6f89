"""An engine whose own KV cache is fp8: chunks of every storage go in and out of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest
import torch

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.cache_codes import decode
from inferscale_core.kv.pieces import pieces_of
from inferscale_core.memory.recipes import Storage
from inferscale_core.vllm_connector.copies import Copy
from tests.engine_kit import BLOCK, TinyEngine, logprob_differences, random_tokens
from tests.tiny_models import LLAMA

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not torch.cpu._is_avx512_supported(), reason="the engine's fp8 cache needs AVX-512"
    ),
]


@pytest.fixture(scope="module", params=[Storage.CACHE, Storage.INT8])
def fp8(request: pytest.FixtureRequest, model_folder: Path) -> Iterator[TinyEngine]:
    engine = TinyEngine(
        LLAMA.save(model_folder), "bfloat16", kv_cache_dtype="fp8", storage=request.param
    )
    yield engine
    engine.close()


OF_CONTROL = {Storage.CACHE: 0.33, Storage.INT8: 0.75}
"""How far from prefill, of what chunks without context are. What comes out of int8 is rounded to
a code again, which moves one in ten by a whole step; see decision 0009."""


def test_jointly_encoded_chunks_are_as_close_to_prefill_as_their_storage(fp8: TinyEngine) -> None:
    seen, control = [], []
    for seed in range(4):
        rng = random.Random(seed)
        parts = [random_tokens(rng, length) for length in (1, BLOCK - 1, BLOCK, BLOCK + 1, 5, 71)]
        prompt = [token for part in parts for token in part] + random_tokens(rng, 20)
        chunks = fp8.encode_jointly(parts)
        alone = [(ChunkKey(f"tenant/alone/{fp8.handle()}"), part) for part in parts]
        for key, part in alone:
            fp8.encode([], key, part)
        expected = fp8.ask(prompt, max_tokens=1)
        for differences, stored in ((seen, chunks), (control, alone)):
            actual = fp8.ask(prompt, fp8.injected(stored), max_tokens=1)
            assert actual.cached == sum(map(len, parts))
            differences.append(fmean(logprob_differences(expected, actual)))
    limit = OF_CONTROL[fp8.worker_side.config.storage] * fmean(control)
    assert fmean(seen) < limit, f"{fmean(seen):.4f} against {fmean(control):.4f}"


def test_what_stays_comes_back_as_it_was(fp8: TinyEngine) -> None:
    """Captured and written to other slots at the same positions, in the engine's own caches: the
    same codes, but that a key of -0 may become 0."""
    worker = fp8.worker_side
    if worker.config.storage is not Storage.CACHE:
        pytest.skip("quantised storage keeps no bits")
    copier = worker._copier
    assert all(layer.scales == (1.0, 1.0) for layer in copier.layers)
    fp8.ask(random_tokens(random.Random(3), 3 * BLOCK), max_tokens=1)
    count, first = BLOCK + 7, 9
    pieces = pieces_of(range(count), 1, count, first)
    source, target = (
        Copy("", first, count, pieces, (blocks,), BLOCK) for blocks in ([1, 2], [40, 41])
    )
    copier.capture([source])
    copier.inject([target])
    device = worker.arena.rows.device
    for layer in copier.layers:
        before, after = (
            layer.read(torch.from_numpy(copy.cache_slots[0]).to(device))
            for copy in (source, target)
        )
        for old, new in zip(before, after, strict=True):
            assert old.dtype == torch.uint8
            assert old.any(), "the cache was meant to hold something"
            old_numbers, new_numbers = (decode(raw.contiguous(), 1.0) for raw in (old, new))
            assert torch.equal(old_numbers, new_numbers)
    worker.arena.zero(torch.arange(count, device=device))


def test_nothing_is_left_behind(fp8: TinyEngine) -> None:
    """Last of the group: what every test above must leave."""
    fp8.assert_idle()
