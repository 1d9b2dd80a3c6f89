"""The built-in facts and questions, with vectors made of their words: no embedder is needed."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources

import numpy as np

from inferscale_core.embedding.embedder import Vectors
from inferscale_core.memory.recipes import Recipe
from inferscale_core.memory.workers import EmbedderIdentity
from services.evaluation.dataset import Conversation, DatasetFact, Question, first_questions
from services.evaluation.prepared import Prepared, prepare

_DIMENSION = 512
_WORD = re.compile(r"\w+")


def built_in_notes() -> Conversation:
    body = json.loads(resources.files(__package__).joinpath("notes.json").read_text("utf-8"))
    return Conversation(
        name="mira",
        turns=(),
        facts=tuple(
            DatasetFact(text, datetime.fromisoformat(date).replace(tzinfo=UTC), ())
            for text, date in body["facts"]
        ),
        questions=tuple(Question(text, answer, category=4) for text, answer in body["questions"]),
    )


def prepared_notes(recipe: Recipe, num_questions: int | None = None) -> Prepared:
    """With vectors. num_questions: only the first so many; None means all."""
    asked = first_questions([built_in_notes()], num_questions)
    return prepare(asked, [recipe], WordVectors())


class WordVectors:
    """Texts that share words are near each other: enough to choose among a few dozen facts."""

    identity = EmbedderIdentity("words", "1", _DIMENSION)
    max_tokens = sys.maxsize

    def count_tokens(self, text: str) -> int:
        return len(_WORD.findall(text))

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Vectors:
        vector = np.zeros(_DIMENSION, np.float32)
        for word in _WORD.findall(text.lower()):
            digest = hashlib.sha256(word.encode()).digest()
            # Long words say more about a fact than short ones.
            vector[int.from_bytes(digest[:4], "little") % _DIMENSION] += len(word)
        norm = float(np.linalg.norm(vector))
        if norm == 0.0:
            vector[0] = norm = 1.0
        return vector / np.float32(norm)
