"""Judging all answers of a folder of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from inferscale_core.errors import InvalidInput
from services.evaluation.answers import load_answers
from services.evaluation.at_once import ask_all
from services.evaluation.dataset import Conversation, Question
from services.evaluation.judge.judge import Judge
from services.evaluation.judge.wording import Triple, Verdict
from services.evaluation.prepared import data_digest
from services.evaluation.progress import Progress
from services.evaluation.scores import JudgedBy, ScoreFile, load_scores

Places = Mapping[tuple[str, int], Question]


async def judge_folder(
    folder: Path,
    conversations: Sequence[Conversation],
    judge: Judge,
    name: JudgedBy,
    at_once: int,
) -> None:
    """Adds a verdict to every score. What is equal is asked for once, whoever said it.

    Verdicts that came before an error are kept, and scores are changed when all are there. Raises
    InvalidInput for scores of other data or without answers.
    """
    digest, places = data_digest(conversations), _places(conversations)
    paths = sorted(folder.glob("*.json"))
    files = {path: load_scores(path) for path in paths}
    triples = {path: _triples(path, file, digest, places) for path, file in files.items()}
    verdicts = await _verdicts({t for own in triples.values() for t in own}, judge, at_once)
    for path, file in files.items():
        judged = _judged(file, [verdicts[triple] for triple in triples[path]], name)
        if judged != file:
            judged.save(path)


def _places(conversations: Sequence[Conversation]) -> Places:
    return {
        (conversation.name, number): question
        for conversation in conversations
        for number, question in enumerate(conversation.questions)
    }


def _triples(path: Path, file: ScoreFile, digest: str, places: Places) -> list[Triple]:
    if file.about.data != digest:
        problem = f"{path} holds scores of {file.about.data}, and this is {digest}"
        raise InvalidInput("data", problem)
    questions = [places[score.conversation, score.number] for score in file.scores]
    pairs = zip(questions, load_answers(path, file), strict=True)
    return [Triple(question.text, question.answer, said.strip()) for question, said in pairs]


async def _verdicts(triples: set[Triple], judge: Judge, at_once: int) -> dict[Triple, Verdict]:
    found = {triple: judge.known(triple) for triple in triples}
    missing = sorted((t for t in triples if found[t] is None), key=lambda triple: triple.digest)
    with Progress("judge", len(missing)) as progress:
        asked = await ask_all(missing, judge.ask, progress, at_once)
    known = {triple: verdict for triple, verdict in found.items() if verdict is not None}
    return known | dict(zip(missing, asked, strict=True))


def _judged(file: ScoreFile, verdicts: Sequence[Verdict], name: JudgedBy) -> ScoreFile:
    scores = (
        replace(score, verdict=verdict.value)
        for score, verdict in zip(file.scores, verdicts, strict=True)
    )
    return replace(file, scores=tuple(scores), judged_by=name)
