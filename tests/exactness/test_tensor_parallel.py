"""Two ranks, each with its own KV heads, arena and host tier, do what one directory decides."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from inferscale_core.ids import ChunkKey
from inferscale_core.vllm_connector.events import EventKind
from tests.engine_kit import BLOCK, TinyEngine, logprob_differences, random_tokens, top_gap
from tests.tiny_models import TinyModel

pytestmark = pytest.mark.engine

IS_GPU = torch.cuda.is_available()
DTYPE, LIMIT = ("bfloat16", 0.03) if IS_GPU else ("float32", 1e-3)
"""On a GPU as it serves: its own attention kernels take no float32."""

KV_HEADS = (1, 2, 4, 8) if IS_GPU else (1, 4)
"""Of the model. A single head is on both ranks, otherwise each rank has half of them. With two a
rank, a layout guessed by shape would be wrong."""


@pytest.fixture(scope="module", params=KV_HEADS, ids=lambda heads: f"{heads}-kv-heads")
def kv_heads(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def two_ranks(kv_heads: int, model_folder: Path) -> Iterator[TinyEngine]:
    heads = {"num_attention_heads": 8, "num_key_value_heads": kv_heads}
    model = TinyModel(f"llama-{kv_heads}-heads", "llama", heads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
        engine = TinyEngine(
            model.save(model_folder),
            DTYPE,
            tensor_parallel_size=2,
            distributed_executor_backend="mp",
            max_model_len=1024,
            max_num_batched_tokens=1024,
            tiers={"host_bytes": 16 << 20},
        )
        yield engine
        engine.close()


def test_each_rank_has_its_own_heads_in_its_own_arena(two_ranks: TinyEngine, kv_heads: int) -> None:
    assert len(two_ranks.started) == 2
    assert two_ranks.started[0] == two_ranks.started[1]
    arenas = two_ranks.llm.collective_rpc("inferscale_arena")
    assert arenas[0] == arenas[1]
    heads_per_rank = max(1, kv_heads // 2)
    width = 2 if IS_GPU else 4
    per_token = two_ranks.side._config.bytes_per_token
    assert per_token == 3 * 2 * heads_per_rank * 32 * width, "3 layers, K and V"


def test_injection_equals_prefill_on_two_ranks(two_ranks: TinyEngine) -> None:
    rng = random.Random(1)
    parts = [random_tokens(rng, length) for length in (1, BLOCK - 1, BLOCK, BLOCK + 1, 71)]
    chunks = two_ranks.encode_jointly(parts)
    prompt = [token for part in parts for token in part] + random_tokens(rng, 12)
    expected = two_ranks.ask(prompt)
    answers = two_ranks.ask_all([(prompt, two_ranks.injected(chunks)) for _ in range(2)])
    for answer in answers:
        assert answer.cached == sum(map(len, parts))
        if top_gap(expected) > 0.1:
            assert answer.token_ids[0] == expected.token_ids[0]
        assert max(logprob_differences(expected, answer)) <= LIMIT


def test_chunks_encoded_alone_differ_or_this_shows_nothing(two_ranks: TinyEngine) -> None:
    rng = random.Random(2)
    parts = [random_tokens(rng, 40) for _ in range(3)]
    alone = [(ChunkKey(f"tenant/alone/{index}"), part) for index, part in enumerate(parts)]
    for key, part in alone:
        two_ranks.encode([], key, part)
    prompt = [token for part in parts for token in part] + random_tokens(rng, 5)
    differences = logprob_differences(
        two_ranks.ask(prompt), two_ranks.ask(prompt, two_ranks.injected(alone))
    )
    assert max(differences) > 0.01


def test_both_ranks_bring_chunks_back_from_their_hosts(two_ranks: TinyEngine) -> None:
    rng = random.Random(3)
    chunks = two_ranks.encode_jointly([random_tokens(rng, 33), random_tokens(rng, 18)])
    prompt = [token for _, part in chunks for token in part] + random_tokens(rng, 7)
    before = two_ranks.ask(prompt, two_ranks.injected(chunks))
    two_ranks.settle()
    directory = two_ranks.side.directory
    for key, _ in chunks:
        entry = directory.get(key)
        assert entry.host.is_written, "every rank has offloaded it"
        directory.lost(entry.gpu)
    answer = two_ranks.ask(prompt, two_ranks.injected(chunks))
    assert answer.cached == 51
    assert answer.logprobs == before.logprobs
    two_ranks.assert_idle()


def test_forgetting_zeroes_both_ranks(two_ranks: TinyEngine) -> None:
    directory = two_ranks.side.directory
    entries = list(directory._entries.values())
    for scope in {entry.key.rpartition("/")[0] for entry in entries}:
        facts = [e.fact.fact_id for e in entries if e.key.startswith(scope + "/")]
        two_ranks.forget(facts, scope=scope, version=1)
    assert two_ranks.events(EventKind.FORGOTTEN)
    assert directory.num_resident == 0
    assert two_ranks.llm.collective_rpc("inferscale_arena_is_zero") == [True, True]
    two_ranks.assert_idle()
