"""A fact that is too long for a model is refused before it is stored, with both numbers.

The worker here counts a token for each letter and takes 40.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferscale_core.client import EncodeState, NewMemory
from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import DEFAULT_RECIPE
from inferscale_core.prompt import PromptFormat
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, worker_pb2
from services.control.memory import lengths
from services.control.memory.lengths import most_tokens
from tests.control.fake_worker import FakeWorker
from tests.control.harness import Control, Tenant, eventually
from tests.tiny_tokenizers import byte_level, sentence_piece, unigram

FITS = "x" * 40
TOO_LONG = "x" * 41
SURELY_SHORT = "x" * 31
"""With its line break and the 8 tokens to spare exactly 40."""

FORMATS = [
    PromptFormat(tokenizer, DEFAULT_RECIPE)
    for tokenizer in (byte_level(), sentence_piece(), unigram())
]


@pytest.fixture
async def worker(control: Control, tenant: Tenant) -> FakeWorker:
    return await control.worker(tenant.model)


async def test_an_add_that_is_too_long_is_refused_and_writes_nothing(
    tenant: Tenant, worker: FakeWorker
) -> None:
    await tenant.client.add_memory("mira", FITS)
    with pytest.raises(InvalidInput) as refused:
        await tenant.client.add_memory("mira", TOO_LONG)
    assert refused.value.field == "memory.text"
    assert refused.value.problem == (f"41 tokens of model {tenant.model!r}; it takes at most 40")
    page = await tenant.client.list_memories("mira")
    assert [memory.text for memory in page.memories] == [FITS]


async def test_an_update_that_is_too_long_is_refused_and_changes_nothing(
    tenant: Tenant, worker: FakeWorker
) -> None:
    added = await tenant.client.add_memory("mira", FITS)
    with pytest.raises(InvalidInput, match=r"^text: 41 tokens of model .* at most 40$"):
        await tenant.client.update_memory("mira", added.memory.memory_id, TOO_LONG)
    memory = await tenant.client.get_memory("mira", added.memory.memory_id)
    assert (memory.text, memory.revision) == (FITS, 1)


async def test_items_of_a_batch_that_are_too_long_are_refused_alone(
    tenant: Tenant, worker: FakeWorker
) -> None:
    texts = ["Mira has a dog.", TOO_LONG, "word " * 100, FITS, "y" * 50]
    added = await tenant.client.batch_add_memories("mira", [NewMemory(t) for t in texts])
    assert [item.memory and item.memory.text for item in added.items] == [
        *(texts[0], None, None, texts[3], None)
    ]
    assert {n: str(item.error) for n, item in enumerate(added.items) if item.error} == {
        1: f"memories[1].text: 41 tokens of model {tenant.model!r}; it takes at most 40",
        2: "memories[2].text: 102 tokens; the embedder's window is 64",
        4: f"memories[4].text: 50 tokens of model {tenant.model!r}; it takes at most 40",
    }
    [request] = worker.count_requests
    assert [one.text for one in request.statements] == [TOO_LONG, FITS, "y" * 50]


async def test_nobody_is_asked_about_a_fact_that_is_surely_short(
    tenant: Tenant, worker: FakeWorker
) -> None:
    await tenant.client.add_memory("mira", SURELY_SHORT)
    assert worker.count_requests == []
    await tenant.client.add_memory("mira", SURELY_SHORT + "x")
    assert len(worker.count_requests) == 1


async def test_a_worker_counts_the_date_too(tenant: Tenant, worker: FakeWorker) -> None:
    moment = datetime(2025, 1, 27, 9, 30, tzinfo=UTC)
    await tenant.client.add_memory("mira", SURELY_SHORT, occurred_at=moment)
    [request] = worker.count_requests
    [statement] = request.statements
    assert statement.occurred_at.ToDatetime(tzinfo=UTC) == moment


async def test_each_model_of_the_tenant_is_asked_and_the_one_that_refuses_is_named(
    control: Control,
) -> None:
    tenant = await control.tenant(models=["roomy", "narrow"])
    roomy, narrow = await control.worker("roomy"), await control.worker("narrow")

    async def count_few(request: worker_pb2.CountTokensRequest) -> worker_pb2.CountTokensResponse:
        return worker_pb2.CountTokensResponse(num_tokens=[3], max_fact_tokens=40)

    roomy.on_count = count_few
    with pytest.raises(InvalidInput, match="41 tokens of model 'narrow'"):
        await tenant.client.add_memory("mira", TOO_LONG)
    assert (len(roomy.count_requests), len(narrow.count_requests)) == (1, 1)


async def test_another_worker_of_the_model_answers_for_one_that_is_away(
    control: Control, tenant: Tenant, worker: FakeWorker
) -> None:
    second = await control.worker(tenant.model)
    by_user = {}
    for number in range(20):
        user_id = f"user-{number}"
        await tenant.client.add_memory(user_id, FITS)
        by_user[user_id] = worker if worker.count_requests else second
        worker.count_requests.clear()
    await worker.stop()
    its_user = next(user_id for user_id, asked in by_user.items() if asked is worker)
    with pytest.raises(InvalidInput, match="41 tokens"):
        await tenant.client.add_memory(its_user, TOO_LONG)


async def test_without_a_worker_the_fact_is_stored_and_its_job_fails_with_both_numbers(
    tenant: Tenant, worker: FakeWorker
) -> None:
    await worker.stop()
    added = await tenant.client.add_memory("mira", TOO_LONG)
    reason = "too_long: 41 tokens; at most 40 fit"

    async def failing(
        request: worker_pb2.EncodeRequest,
    ) -> AsyncIterator[worker_pb2.EncodeResponse]:
        async for response in worker.encode(request):
            response.state = common_pb2.ENCODE_STATE_FAILED
            response.reason = reason
            yield response

    worker.on_encode = failing
    await worker.start()
    await worker.join()

    async def has_failed() -> bool:
        memory = await tenant.client.get_memory("mira", added.memory.memory_id)
        return [(s.state, s.reason) for s in memory.encode_status] == [(EncodeState.FAILED, reason)]

    assert await eventually(has_failed)


async def test_a_worker_that_does_not_answer_in_time_holds_nobody_up(
    tenant: Tenant, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(request: worker_pb2.CountTokensRequest) -> worker_pb2.CountTokensResponse:
        await asyncio.sleep(60)
        raise AssertionError("the deadline had passed")

    worker.on_count = sleep
    monkeypatch.setattr(lengths, "COUNT_LIMIT_S", 0.2)
    async with asyncio.timeout(5):
        added = await tenant.client.add_memory("mira", TOO_LONG)
    assert added.memory.text == TOO_LONG


@settings(max_examples=400, deadline=None)
@given(text=st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_no_tokenizer_makes_more_tokens_of_a_line_than_are_reckoned_with(text: str) -> None:
    for dated in (None, datetime(2025, 1, 27, tzinfo=UTC)):
        bound = most_tokens(DEFAULT_RECIPE.render(text, dated))
        for prompt_format in FORMATS:
            assert len(prompt_format.fact_ids(text, dated)) <= bound


@pytest.mark.parametrize("text", ["\ufdfa" * 20, "ﬃ" * 20, "\U0001d160" * 20, "İ ŉ ẞ ﷺ", "\n\n\n"])
def test_letters_that_normalising_spells_out_are_reckoned_with(text: str) -> None:
    bound = most_tokens(DEFAULT_RECIPE.render(text, None))
    assert all(len(one.fact_ids(text, None)) <= bound for one in FORMATS)
