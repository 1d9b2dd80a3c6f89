"""A data set with the vectors of its facts and questions, in one file that travels.

Where it is asked, no embedder is needed: the vectors stand in for it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from inferscale_core.embedding import Embedder
from inferscale_core.embedding.embedder import HostEmbedder, Vectors
from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import Recipe
from inferscale_core.memory.workers import EmbedderIdentity
from services.evaluation.dataset import Conversation, DatasetFact, DatasetTurn, Question

_BATCH = 256


@dataclass(frozen=True, slots=True)
class Prepared:
    """vectors: [num_texts, dimension] float32 unit vectors; `row_by_text` says whose they are."""

    conversations: tuple[Conversation, ...]
    identity: EmbedderIdentity
    row_by_text: Mapping[str, int]
    vectors: Vectors

    @property
    def digest(self) -> str:
        return data_digest(self.conversations)


def data_digest(conversations: Sequence[Conversation]) -> str:
    """Names what is asked: scores of other data are not mixed with these."""
    body = json.dumps([asdict(c) for c in conversations], default=str, sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()[:12]


class PreparedVectors(HostEmbedder):
    """An embedder that knows the vectors of prepared texts and of no others."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    @property
    def identity(self) -> EmbedderIdentity:
        return self._prepared.identity

    @property
    def max_tokens(self) -> int:
        return sys.maxsize

    def count_tokens(self, text: str) -> int:
        return 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Raises InvalidInput for a text that was not prepared."""
        try:
            rows = [self._prepared.row_by_text[text] for text in texts]
        except KeyError as exc:
            raise InvalidInput(
                "prepared", "has no vector for a text: it was made for another wording of facts"
            ) from exc
        return self._prepared.vectors[rows]


def prepare(
    conversations: Sequence[Conversation], recipes: Sequence[Recipe], embedder: Embedder
) -> Prepared:
    """Embed every question, and every fact as each of these recipes words it."""
    texts = list(dict.fromkeys(_texts(conversations, recipes)))
    batches = [
        embedder.embed(texts[begin : begin + _BATCH]) for begin in range(0, len(texts), _BATCH)
    ]
    rows = {text: row for row, text in enumerate(texts)}
    return Prepared(tuple(conversations), embedder.identity, rows, np.concatenate(batches))


def without_vectors(conversations: Sequence[Conversation]) -> Prepared:
    """For a service that embeds them itself."""
    identity = EmbedderIdentity("none", "", 1)
    return Prepared(tuple(conversations), identity, {}, np.zeros((0, 1), np.float32))


def save(prepared: Prepared, path: Path) -> None:
    body = {
        "embedder": asdict(prepared.identity),
        "conversations": [asdict(conversation) for conversation in prepared.conversations],
        "texts": list(prepared.row_by_text),
    }
    text = json.dumps(body, ensure_ascii=False, default=_date_to_text).encode()
    with path.open("wb") as file:
        np.savez_compressed(file, body=np.frombuffer(text, np.uint8), vectors=prepared.vectors)


def load(path: Path) -> Prepared:
    """Raises InvalidInput for a file that is none of ours."""
    try:
        with np.load(path, allow_pickle=False) as file:
            body, vectors = json.loads(file["body"].tobytes()), file["vectors"]
    except (OSError, ValueError, KeyError) as exc:
        raise InvalidInput("prepared", f"{path} cannot be read: {exc}") from exc
    return Prepared(
        conversations=tuple(map(_conversation, body["conversations"])),
        identity=EmbedderIdentity(**body["embedder"]),
        row_by_text={text: row for row, text in enumerate(body["texts"])},
        vectors=vectors,
    )


def _texts(conversations: Sequence[Conversation], recipes: Sequence[Recipe]) -> Iterator[str]:
    for conversation in conversations:
        for question in conversation.questions:
            yield question.text
        for fact in conversation.facts:
            for recipe in recipes:
                yield recipe.render(fact.text, fact.occurred_at)


def _conversation(body: Mapping[str, Any]) -> Conversation:
    return Conversation(
        name=body["name"],
        turns=tuple(DatasetTurn(**turn) for turn in body["turns"]),
        facts=tuple(
            DatasetFact(fact["text"], _date_from_text(fact["occurred_at"]), tuple(fact["turn_ids"]))
            for fact in body["facts"]
        ),
        questions=tuple(Question(**question) for question in body["questions"]),
    )


def _date_to_text(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()


def _date_from_text(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
