"""The direct driver on a real engine with a random Llama of three layers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from inferscale_core.errors import EngineError
from inferscale_core.memory.plans import Plan
from inferscale_core.memory.recipes import RECIPES, Recipe
from inferscale_core.memory.spans import Spans
from services.evaluation.asking import Asking
from services.evaluation.dataset import Part
from services.evaluation.direct import Ask, DirectDriver
from services.evaluation.locomo import load_locomo
from services.evaluation.prepared import Prepared, prepare
from services.evaluation.scores import divergence, said_digest
from services.worker.app import RunningEngine
from services.worker.engine.model_files import load_tokenizer
from services.worker.scoring import AnswerScorer
from tests.evaluation.conversations import write_conversations
from tests.worker.control import WordEmbedder
from tests.worker.real_worker import real_engine

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

ASKING = Asking(max_tokens=6)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningEngine]:
    async with real_engine(tmp_path_factory.mktemp("models")) as running:
        yield running


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = write_conversations(tmp_path_factory.mktemp("data"))
    return prepare(load_locomo(folder), [RECIPES["progressive-32"]], WordEmbedder())


def driver(running: RunningEngine, prepared: Prepared, recipe: Recipe) -> DirectDriver:
    tokenizer = load_tokenizer(running.model)
    return DirectDriver(running, prepared, recipe, tokenizer, ASKING, at_once=8)


async def text_logprobs(running: RunningEngine, ask: Ask, answer: list[int]) -> list[float]:
    """Of the answer's tokens behind the prompt, in one prefill, as the engine itself lists them."""
    from vllm import SamplingParams

    prompt = [*ask.text.token_ids, *answer]
    stream = running.host._llm.generate(
        {"prompt_token_ids": prompt, "cache_salt": f"prompt-{ask.number}"},
        SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0),
        f"prompt-{ask.conversation}-{ask.number}",
    )
    async for output in stream:
        final = output
    listed = final.prompt_logprobs[len(ask.text.token_ids) :]
    return [step[token].logprob for step, token in zip(listed, answer, strict=True)]


async def test_an_answers_tokens_are_scored_as_one_prefill_of_it_scores_them(
    running: RunningEngine, prepared: Prepared
) -> None:
    one = driver(running, prepared, RECIPES["progressive-8"])
    await one.encode()
    asks = await one.asks(3)
    for ask in asks[:3]:
        answer = [50 + ask.number, 60, 70, 80]
        score = await AnswerScorer(running.host, running.reports).score(ask.text, answer, 2)
        expected = await text_logprobs(running, ask, answer)
        assert score.answer_logprobs == pytest.approx(expected, abs=2e-3)
    await one.close()


def in_order_of_arrival(plan: Plan) -> Plan:
    """The same facts as the encoding of a running sequence saw them."""
    order = sorted(range(len(plan.facts)), key=lambda place: plan.facts[place].fact.fact_id)
    facts = tuple(plan.facts[place] for place in order)
    spans = Spans.of((plan.spans[0], *(plan.spans[1 + place] for place in order)))
    begin, end = plan.header_tokens, plan.header_tokens + sum(len(f.token_ids) for f in facts)
    middle = tuple(token for fact in facts for token in fact.token_ids)
    ids = plan.token_ids[:begin] + middle + plan.token_ids[end:]
    return replace(plan, token_ids=ids, spans=spans, facts=facts)


async def test_facts_served_as_they_were_encoded_score_as_text(
    running: RunningEngine, prepared: Prepared
) -> None:
    """All of a user's facts in order of arrival, behind a running sequence: joint prefill."""
    one = driver(running, prepared, RECIPES["running-sequence"])
    cost = await one.encode()
    assert cost.waves == 8
    scorer = AnswerScorer(running.host, running.reports)
    for ask in (await one.asks(8))[:2]:
        injected = in_order_of_arrival(ask.injected)
        text = await scorer.score(replace(injected, spans=Spans.of(())), [40, 41, 42], 6)
        seen = await scorer.score(injected, [40, 41, 42], 6, compared=tuple(text.first.logprobs))
        assert seen.answer_logprobs == pytest.approx(text.answer_logprobs, abs=2e-3)
        assert seen.said == text.said
        assert divergence(text.first.logprobs, seen.first.logprobs) < 1e-5
    await one.close()


async def test_both_modes_ask_the_same_tokens_and_isolated_facts_score_otherwise(
    running: RunningEngine, prepared: Prepared
) -> None:
    one = driver(running, prepared, RECIPES["window-0"])
    cost = await one.encode()
    assert (cost.facts, cost.waves) == (16, 1)
    asks = await one.asks(5)
    assert [ask.number for ask in asks] == [0, 1, 2, 3] * 2
    for ask in asks:
        assert ask.injected.token_ids == ask.text.token_ids
        assert len(ask.injected.spans) == 1 + 5
    texts = await one.ask_text(asks)
    assert min(len(text.first) for text in texts) >= 100
    injected = await one.ask_injected(asks, [text.first for text in texts])
    assert [seen.first.keys() for seen in injected] == [text.first.keys() for text in texts]
    assert all(said_digest(seen.said) == seen.score.said for seen in (*texts, *injected))
    seen = [one.score for one in injected]
    assert [s.prompt for s in seen] == [text.score.prompt for text in texts]
    # A random model may be as good as certain of a token whatever it reads.
    assert max(s.kl for s in seen) > 1e-3
    pairs = zip(seen, texts, strict=True)
    assert all(abs(score.nll - text.score.nll) > 1e-3 for score, text in pairs)
    await one.close()


async def test_parts_ask_every_question_once_by_the_number_it_has_in_the_whole(
    running: RunningEngine, prepared: Prepared
) -> None:
    asked = []
    for number in (1, 2):
        tokenizer = load_tokenizer(running.model)
        part = Part(number, 2)
        recipe = RECIPES["window-0"]
        one = DirectDriver(running, prepared, recipe, tokenizer, ASKING, at_once=8, part=part)
        await one.encode()
        asked.append([(ask.conversation, ask.number, ask.question) for ask in await one.asks(2)])
        await one.close()
    assert [len(asks) for asks in asked] == [4, 4]
    assert sorted(place[:2] for asks in asked for place in asks) == [
        (conversation.name, number)
        for conversation in prepared.conversations
        for number in range(len(conversation.questions))
    ]
    by_name = {conversation.name: conversation for conversation in prepared.conversations}
    for name, number, question in (place for asks in asked for place in asks):
        assert by_name[name].questions[number] == question


async def test_a_prompt_that_was_not_injected_whole_is_not_scored(
    running: RunningEngine, prepared: Prepared
) -> None:
    one = driver(running, prepared, RECIPES["progressive-8"])
    await one.encode()
    asks = await one.asks(4)
    await one.close()
    with pytest.raises(EngineError, match=r"tokens to inject the engine supplied"):
        await AnswerScorer(running.host, running.reports).score(asks[0].injected, [40], 2)


async def test_forwarded_tokens_count_what_stands_before_a_fact_as_text(
    running: RunningEngine, prepared: Prepared
) -> None:
    costs = {}
    for name in ("progressive-8", "neighbours-32-as-text", "window-5"):
        one = driver(running, prepared, RECIPES[name])
        costs[name] = (await one.encode()).forwarded_tokens
        await one.close()
    assert costs["progressive-8"] < costs["window-5"] < costs["neighbours-32-as-text"]
