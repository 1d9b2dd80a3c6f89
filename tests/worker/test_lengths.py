"""The worker counts facts before they are stored as it counts them when it encodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from inferscale_core.ids import FactId
from inferscale_core.memory.recipes import Recipe
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2
from tests.unit.prompt.test_plain_text import HOSTILE, ODD
from tests.worker.conftest import RECIPE, FakeWorker, MakeWorker
from tests.worker.test_encode import TEXTS, encode
from tests.worker.test_servicer import servicer

MOMENT = datetime(2025, 1, 27, 23, 59, 59, 999_999, tzinfo=UTC)
LIMIT = RECIPE.max_fact_tokens


async def count(
    worker: FakeWorker, texts: Sequence[str], occurred_at: datetime | None = None
) -> worker_pb2.CountTokensResponse:
    request = worker_pb2.CountTokensRequest()
    for text in texts:
        statement = request.statements.add(text=text)
        if occurred_at is not None:
            statement.occurred_at.FromDatetime(occurred_at)
    return await servicer(worker).CountTokens(request, None)


@pytest.mark.parametrize("occurred_at", [None, MOMENT], ids=["undated", "dated"])
async def test_a_count_is_what_encoding_makes_of_the_fact(
    worker: FakeWorker, occurred_at: datetime | None
) -> None:
    texts = [*TEXTS, *HOSTILE, *ODD, "word " * 200]
    for number, text in enumerate(texts):
        worker.control.add(f"f{number}", text)
        if occurred_at is not None:
            fact = worker.control.user().facts[f"f{number}"]
            fact.occurred_at.FromDatetime(occurred_at)
    encoded = {result.fact.fact_id: result.num_tokens for result in await encode(worker)}
    counted = (await count(worker, texts, occurred_at)).num_tokens
    assert list(counted) == [encoded[FactId(f"f{number}")] for number in range(len(texts))]


async def test_a_fact_of_as_many_tokens_as_are_allowed_is_encoded_and_one_more_is_not(
    worker: FakeWorker,
) -> None:
    """In this tokenizer, which has seen no such letter, each is a token of its own."""
    longest = "z" * (LIMIT - 1)
    counted = await count(worker, [longest, longest + "z"])
    assert list(counted.num_tokens) == [LIMIT, LIMIT + 1]
    assert counted.max_fact_tokens == LIMIT
    worker.control.add("longest", longest)
    worker.control.add("beyond", longest + "z")
    reasons = {result.fact.fact_id: result.reason for result in await encode(worker)}
    assert reasons == {
        "longest": None,
        "beyond": f"too_long: {LIMIT + 1} tokens; at most {LIMIT} fit",
    }


async def test_a_short_context_lowers_the_limit_to_what_it_can_encode(
    make_worker: MakeWorker,
) -> None:
    recipe = Recipe("roomy", max_fact_tokens=4000)
    worker = make_worker(recipe, max_model_len=200)
    limit = (await count(worker, [])).max_fact_tokens
    assert limit == 199 - worker.parts.rules.header_tokens
    worker.control.add("longest", "z" * (limit - 1))
    worker.control.add("beyond", "z" * limit)
    reasons = {result.fact.fact_id: result.reason for result in await encode(worker)}
    assert reasons == {
        "longest": None,
        "beyond": f"too_long: {limit + 1} tokens; at most {limit} fit",
    }


async def test_counting_keeps_nothing_and_asks_no_engine(worker: FakeWorker) -> None:
    counted = await count(worker, TEXTS)
    assert all(counted.num_tokens)
    assert len(worker.parts.users) == 0
    assert worker.engine.requests == []
