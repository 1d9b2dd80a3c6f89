"""What is asked about: conversations with their facts and turns, and questions with answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime


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
