"""Two ranks with few-bit storage: each takes the bias of its own heads from their keys."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.key_means import RankMeans, key_means_of_ranks
from inferscale_core.memory.recipes import Storage
from tests.engine_kit import TinyEngine, logprob_differences, random_tokens
from tests.tiny_models import LARGE_BIAS

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def two_ranks(model_folder: Path) -> Iterator[TinyEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
        engine = TinyEngine(
            LARGE_BIAS.save(model_folder),
            "float32",
            tensor_parallel_size=2,
            distributed_executor_backend="mp",
            max_model_len=1024,
            max_num_batched_tokens=1024,
            storage=Storage.FP8,
        )
        yield engine
        engine.close()


def test_both_ranks_serve_what_they_stored_in_fewer_bits(two_ranks: TinyEngine) -> None:
    assert all("3 key biases" in line for line in two_ranks.started)
    rng = random.Random(1)
    parts = [random_tokens(rng, length) for length in (1, 31, 32, 33, 71)]
    prompt = [token for part in parts for token in part] + random_tokens(rng, 12)
    chunks = two_ranks.encode_jointly(parts)
    alone = [(ChunkKey(f"tenant/alone/{index}"), part) for index, part in enumerate(parts)]
    for key, part in alone:
        two_ranks.encode([], key, part)
    expected = two_ranks.ask(prompt, max_tokens=1)
    seen, control = (
        fmean(logprob_differences(expected, two_ranks.ask(prompt, injected, max_tokens=1)))
        for injected in (two_ranks.injected(chunks), two_ranks.injected(alone))
    )
    assert 0 < seen < control / 2, f"{seen:.4f} against {control:.4f}"
    two_ranks.assert_idle()


def test_both_ranks_measure_what_their_own_heads_have_in_common(two_ranks: TinyEngine) -> None:
    """The bias of 354 is negative on every other head."""
    two_ranks.llm.collective_rpc("inferscale_measure_keys")
    rng = random.Random(2)
    two_ranks.encode_jointly([random_tokens(rng, length) for length in (8, 40, 40)])
    ranks = two_ranks.llm.collective_rpc("inferscale_key_means")
    found = [{k: RankMeans(*part) for k, part in rank["layers"].items()} for rank in ranks]
    whole = key_means_of_ranks(found)
    assert len(whole.by_layer) == 3
    for means in whole.by_layer.values():
        assert means.shape == (2, 32)
        large = means.reshape(2, 2, 16)[:, :, -4:].astype(float).mean((1, 2))
        assert abs(large - [354, -354]).max() < 10
    two_ranks.assert_idle()
