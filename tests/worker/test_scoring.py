"""How likely an answer is behind a prompt: what is asked of the engine."""

from __future__ import annotations

from inferscale_core.memory.plans import Plan
from services.worker.engine.protocol import NextToken
from services.worker.scoring import AnswerScorer
from tests.worker.conftest import FakeWorker

PROMPT, ANSWER = (1, 2, 3, 4), (5, 6)


async def test_what_is_to_be_computed_before_goes_first_and_shares_its_blocks(
    worker: FakeWorker,
) -> None:
    worker.engine.says = lambda request: NextToken(5, {5: -1.0, 6: -2.0})
    scorer = AnswerScorer(worker.engine, worker.reports)
    score = await scorer.score(Plan.of(PROMPT), ANSWER, 2, num_computed_before=3)
    assert score.answer_logprobs == (-1.0, -2.0)
    before, *others = worker.engine.requests
    assert before.token_ids == PROMPT[:3]
    assert {request.token_ids for request in others} == {PROMPT, (*PROMPT, 5)}
    assert {request.cache_salt for request in others} == {before.cache_salt}


async def test_a_prompt_is_computed_whole_otherwise(worker: FakeWorker) -> None:
    worker.engine.says = lambda request: NextToken(5, {5: -1.0, 6: -2.0})
    await AnswerScorer(worker.engine, worker.reports).score(Plan.of(PROMPT), ANSWER, 2)
    assert worker.engine.requests[0].token_ids == PROMPT
