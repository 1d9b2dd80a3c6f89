"""An embedder that needs no model: words decide the vector, and a test may hold it up."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

import numpy as np

from inferscale_core.embedding import EmbedderIdentity, checked_unit_vectors
from inferscale_core.embedding.embedder import Vectors

DIMENSION = 8
MAX_TOKENS = 64


class FakeEmbedder:
    """A token is a word, and there are two special ones. Texts that share words are alike.

    `hold` makes every `embed` wait until `release`. The text `poison` gives a zero vector.
    """

    max_tokens = MAX_TOKENS

    def __init__(self, identity: EmbedderIdentity | None = None) -> None:
        self.identity = identity or EmbedderIdentity("words", "1", DIMENSION)
        self.embedded: list[str] = []
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def count_tokens(self, text: str) -> int:
        return len(text.split()) + 2

    def embed(self, texts: Sequence[str]) -> Vectors:
        assert self._free.wait(30), "a test left the embedder held"
        self.embedded.extend(texts)
        vectors = np.array([_bag_of_words(text) for text in texts], dtype=np.float32)
        return checked_unit_vectors(vectors, self.identity.dimension)


def _bag_of_words(text: str) -> np.ndarray:
    vector = np.zeros(DIMENSION)
    for word in text.lower().strip().split():
        if word != "poison":
            digest = hashlib.sha256(word.strip(".,?!:").encode()).digest()
            vector += np.frombuffer(digest[:DIMENSION], dtype=np.uint8) / 128.0 - 1.0
    return vector
