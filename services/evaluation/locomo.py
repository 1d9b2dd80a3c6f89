"""Conversations of LoCoMo (Maharana et al., ACL 2024) from a folder of JSON files.

A file holds `session_N` (turns), `session_N_date_time`, `session_N_observation` (ready-made facts
with the ids of their source turns) and `qa`. Questions of category 5 have no answer in the
conversation and are left out, as in the usual score. The data is not part of this project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from inferscale_core.errors import InvalidInput
from services.evaluation.dataset import Conversation, DatasetFact, DatasetTurn, Question

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}

_TIME = "%I:%M %p on %d %B, %Y"
_TURN_ID = re.compile(r"D\d+:\d+")


def load_locomo(folder: Path) -> list[Conversation]:
    """Raises InvalidInput when the folder has no conversation or one that cannot be read."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InvalidInput("data", f"{folder} has no *.json")
    return [_conversation(path) for path in paths]


def _conversation(path: Path) -> Conversation:
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Conversation(
            name=path.stem,
            turns=tuple(_turns(body)),
            facts=tuple(_stated_first(_facts(body))),
            questions=tuple(_questions(body)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InvalidInput("data", f"{path.name} is no conversation of LoCoMo: {exc!r}") from exc


def _sessions(body: Mapping[str, Any]) -> Iterator[str]:
    for number in count(1):
        name = f"session_{number}"
        if f"{name}_date_time" not in body:
            return
        if name in body:
            yield name


def _turns(body: Mapping[str, Any]) -> Iterator[DatasetTurn]:
    for session in _sessions(body):
        for turn in body[session]:
            caption = turn.get("blip_caption")
            picture = f" (shows a picture: {caption})" if caption else ""
            yield DatasetTurn(turn["dia_id"], turn["speaker"], turn["text"] + picture)


def _facts(body: Mapping[str, Any]) -> Iterator[DatasetFact]:
    for session in _sessions(body):
        occurred_at = datetime.strptime(body[f"{session}_date_time"], _TIME).replace(tzinfo=UTC)
        for facts in body.get(f"{session}_observation", {}).values():
            for text, source in facts:
                yield DatasetFact(text, occurred_at, tuple(_TURN_ID.findall(str(source))))


def _stated_first(facts: Iterator[DatasetFact]) -> Iterator[DatasetFact]:
    """A statement that is made again is the same fact, as for the service."""
    seen = set()
    for fact in facts:
        if fact.text not in seen:
            seen.add(fact.text)
            yield fact


def _questions(body: Mapping[str, Any]) -> Iterator[Question]:
    for entry in body["qa"]:
        if entry["category"] in CATEGORIES:
            yield Question(entry["question"], str(entry["answer"]), entry["category"])
