"""What is asked about: conversations with their facts and turns, and questions with answers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from inferscale_core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class DatasetTurn:
    turn_id: str
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class DatasetFact:
    """turn_ids: its source. Facts stand in order of arrival."""

    text: str
    occurred_at: datetime | None
    turn_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """category: as the data set numbers them."""

    text: str
    answer: str
    category: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """One user's memory, and what is asked of it."""

    name: str
    turns: tuple[DatasetTurn, ...]
    facts: tuple[DatasetFact, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One of `total` parts of a data set's questions, counted from 1."""

    number: int
    total: int

    def places(self, conversations: Sequence[Conversation]) -> frozenset[tuple[str, int]]:
        """Conversation and number of its questions. Parts are alike in size, and every conversation
        and category is shared out among them; what is in which depends on the questions alone."""
        dealt = sorted(
            (conversation.name, question.category, _shuffled(question.text), number)
            for conversation in conversations
            for number, question in enumerate(conversation.questions)
        )
        own = dealt[self.number - 1 :: self.total]
        return frozenset((name, number) for name, _, _, number in own)


def part_by_name(name: str) -> Part:
    """`2/3`: the second of three. Raises InvalidInput for what is no part."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", name)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InvalidInput("part", f"{name!r} is not like 1/3, 2/3 or 3/3")
    return Part(int(match[1]), int(match[2]))


def _shuffled(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def first_questions(
    conversations: Sequence[Conversation], limit: int | None
) -> tuple[Conversation, ...]:
    """The conversations of the first `limit` questions, with these alone; None means all."""
    if limit is None:
        return tuple(conversations)
    kept = []
    for conversation in conversations:
        if limit <= 0:
            break
        kept.append(replace(conversation, questions=conversation.questions[:limit]))
        limit -= len(conversation.questions)
    return tuple(kept)
