"""The demo's conversation: five months of Mira's life, the facts in it, and questions about them.

All of it is in `mira.json`, written for this project. A fact names the turns it came from; a
question names the facts that answer it and words that a right answer contains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

STORY_FILE = Path(__file__).with_name("mira.json")


@dataclass(frozen=True, slots=True)
class StoryTurn:
    turn_id: str
    speaker: str
    text: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class StoryFact:
    key: str
    text: str
    occurred_at: datetime
    turn_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """answered_by: keys of facts. expected: words of a right answer, in lower case."""

    text: str
    answered_by: tuple[str, ...]
    expected: tuple[str, ...]

    def is_answered_in(self, answer: str) -> bool:
        return all(word in answer.lower() for word in self.expected)


@dataclass(frozen=True, slots=True)
class StoryUpdate:
    """A fact that changes later: its new text, and a question whose answer changes with it."""

    key: str
    text: str
    occurred_at: datetime
    question: Question


@dataclass(frozen=True, slots=True)
class Story:
    user_id: str
    conversation_id: str
    turns: tuple[StoryTurn, ...]
    facts: tuple[StoryFact, ...]
    questions: tuple[Question, ...]
    wide_question: Question
    update: StoryUpdate


def load_story(path: Path = STORY_FILE) -> Story:
    body = json.loads(path.read_text(encoding="utf-8"))
    return Story(
        user_id=body["user_id"],
        conversation_id=body["conversation"]["conversation_id"],
        turns=tuple(
            StoryTurn(turn["turn_id"], turn["speaker"], turn["text"], _time(turn))
            for turn in body["conversation"]["turns"]
        ),
        facts=tuple(
            StoryFact(fact["key"], fact["text"], _time(fact), tuple(fact["turn_ids"]))
            for fact in body["facts"]
        ),
        questions=tuple(_question(item) for item in body["questions"]),
        wide_question=_question(body["wide_question"]),
        update=_update(body["update"]),
    )


def _time(item: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(item["occurred_at"])


def _question(item: Mapping[str, Any]) -> Question:
    expected = tuple(word.lower() for word in item["expected"])
    return Question(item["question"], tuple(item["answered_by"]), expected)


def _update(item: Mapping[str, Any]) -> StoryUpdate:
    question = _question({**item, "answered_by": [item["key"]]})
    return StoryUpdate(item["key"], item["text"], _time(item), question)
