"""What was measured of each question, in one file for each way of asking and each k.

A file holds numbers, never text of the data set, so that a report can be made again from it. It is
written once it is whole: a run that was cut off goes on with the first file that is missing. A
judge adds its verdicts later.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from inferscale_core.errors import InvalidInput
from services.evaluation.dataset import Question
from services.evaluation.squad import token_f1
from services.worker.scoring import PlanScore

TEXT, TEXT_AGAIN = "text", "text-again"
"""Modes that are no recipe."""

PART_MARK = "-part"
"""In the name of a file that holds a part of the questions: behind it stands which."""

FirstTokens = Mapping[int, float]
"""Log-probabilities of the likeliest first tokens of an answer."""


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """prompt: digest of the prompt's tokens. nll: mean negative log-probability of the gold
    answer's tokens, in nats. said: digest of the answer. top_token: its likeliest first token.
    kl: divergence of the first token from text mode's; 0 in text mode itself. verdict: the judge's,
    "" where none was asked."""

    conversation: str
    number: int
    category: int
    prompt: str
    f1: float
    nll: float
    said: str
    top_token: int
    kl: float = 0.0
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """first: log-probabilities of the first tokens that ways of asking are compared by. said: the
    answer itself, of which a score has the digest alone."""

    score: QuestionScore
    first: FirstTokens
    said: str


@dataclass(frozen=True, slots=True)
class About:
    """Of what the scores are; scores of another data set, model or question are not compared."""

    data: str
    model_revision: str
    asked: str
    k: int


@dataclass(frozen=True, slots=True)
class EncodeCost:
    """forwarded_tokens: computed by the model to encode all facts. waves: of the user that has most
    of them. seconds: for all users at once."""

    facts: int
    forwarded_tokens: int
    waves: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JudgedBy:
    """asked: digest of how the judge was asked. Verdicts of other judges are not compared."""

    model: str
    asked: str


@dataclass(frozen=True, slots=True)
class ScoreFile:
    """mode: "text", or the recipe's name. dtype: what chunks are stored as; "" in text mode.
    compared: of each question the first tokens of text mode; empty for a recipe. made: when, with
    what and on what. judged_by: whose the verdicts are; None before a judge was asked."""

    about: About
    mode: str
    dtype: str
    scores: tuple[QuestionScore, ...]
    compared: tuple[FirstTokens, ...] = ()
    cost: EncodeCost | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    judged_by: JudgedBy | None = None

    def save(self, path: Path) -> None:
        body: dict[str, Any] = {
            "about": asdict(self.about),
            "mode": self.mode,
            "dtype": self.dtype,
            "cost": asdict(self.cost) if self.cost else None,
            "made": dict(self.made),
            "judged_by": asdict(self.judged_by) if self.judged_by else None,
            "columns": [column.name for column in fields(QuestionScore)],
            "scores": [astuple(score) for score in self.scores],
            "compared": [[list(first), list(first.values())] for first in self.compared],
        }
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(body))
        partial.replace(path)


def load_scores(path: Path) -> ScoreFile:
    """Raises InvalidInput for a file that is none of ours."""
    try:
        body = json.loads(path.read_text())
        columns = body["columns"]
        return ScoreFile(
            about=About(**body["about"]),
            mode=body["mode"],
            dtype=body["dtype"],
            scores=tuple(
                QuestionScore(**dict(zip(columns, row, strict=True))) for row in body["scores"]
            ),
            compared=tuple(dict(zip(*pair, strict=True)) for pair in body["compared"]),
            cost=EncodeCost(**body["cost"]) if body["cost"] else None,
            made=body["made"],
            # Files from before there was a judge have none.
            judged_by=JudgedBy(**body["judged_by"]) if body.get("judged_by") else None,
        )
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise InvalidInput("out", f"{path} holds no scores: {exc}") from exc


def joined(parts: Sequence[ScoreFile]) -> ScoreFile:
    """Scores of one way of asking, of which each file has other questions. Judged only where one
    judge was asked for all."""
    first = parts[0]
    return replace(
        first,
        judged_by=first.judged_by if len({part.judged_by for part in parts}) == 1 else None,
        scores=tuple(score for part in parts for score in part.scores),
        compared=tuple(tokens for part in parts for tokens in part.compared),
    )


def score_question(
    conversation: str,
    number: int,
    question: Question,
    prompt: str,
    score: PlanScore,
    compared: FirstTokens | None,
) -> QuestionScore:
    """prompt: digest of its tokens. compared: text mode's first tokens; None when the score is text
    mode's own."""
    return QuestionScore(
        conversation=conversation,
        number=number,
        category=question.category,
        prompt=prompt,
        f1=token_f1(score.said, question.answer),
        nll=-sum(score.answer_logprobs) / max(1, len(score.answer_logprobs)),
        said=said_digest(score.said),
        top_token=score.first.token_id,
        kl=divergence(compared, score.first.logprobs) if compared is not None else 0.0,
    )


def said_digest(said: str) -> str:
    return hashlib.sha256(said.strip().encode()).hexdigest()[:12]


def divergence(wanted: FirstTokens, seen: Mapping[int, float]) -> float:
    """Kullback-Leibler divergence of `seen` from `wanted`, in nats.

    Over the tokens of `wanted`; all others count as one, so the true value is never smaller.
    """
    total = rest_wanted = rest_seen = 0.0
    for token_id, logprob in wanted.items():
        total += math.exp(logprob) * (logprob - seen[token_id])
        rest_wanted += math.exp(logprob)
        rest_seen += math.exp(seen[token_id])
    rest_wanted, rest_seen = 1.0 - rest_wanted, 1.0 - rest_seen
    if rest_wanted > 1e-6 and rest_seen > 1e-9:
        total += rest_wanted * math.log(rest_wanted / rest_seen)
    return max(0.0, total)
