"""An embedder on a sentence-transformers model."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from inferscale_core.embedding.embedder import (
    EmbedderIdentity,
    Vectors,
    checked_unit_vectors,
    in_host_memory,
)
from inferscale_core.errors import Unsupported

if TYPE_CHECKING:
    import torch

    from inferscale_core.embedding.lean import LeanForward

_BATCH_TEXTS = 32
"""Texts of one forward pass: the lock is free again after it, so a query never waits for a whole
import. 32 short texts take about 40 ms on two CPU cores with all-MiniLM-L6-v2."""


class SentenceTransformerEmbedder:
    """Runs the model one batch at a time, since its tokenizer keeps state between calls."""

    def __init__(
        self,
        model: Any,
        *,
        embedder_id: str,
        revision: str,
        dimension: int,
        forward: LeanForward | None = None,
    ) -> None:
        """forward: what gives the same vectors as the model's own `encode`, but sooner.

        Raises Unsupported when the model's vectors do not have `dimension` components.
        """
        self._model = model
        self._lean = forward
        self._lock = threading.Lock()
        self._counting = _tokenizer_for_counting(model)
        actual = self._forward(["dimension"]).shape[1]
        if actual != dimension:
            raise Unsupported(
                f"embedder {embedder_id!r} gives {actual} dimensions, "
                f"but the settings say {dimension} (embedder.dimension)"
            )
        self._identity = EmbedderIdentity(embedder_id, revision, dimension)

    @property
    def identity(self) -> EmbedderIdentity:
        return self._identity

    @property
    def max_tokens(self) -> int:
        return int(self._model.max_seq_length)

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device("cpu") if self._lean is None else self._lean.device

    def count_tokens(self, text: str) -> int:
        if self._counting is not None:
            return len(self._counting.encode(text).ids)
        with self._lock:
            encoded = self._model.tokenizer(text, truncation=False, padding=False, verbose=False)
        return len(encoded["input_ids"])

    def embed(self, texts: Sequence[str]) -> Vectors:
        dimension = self._identity.dimension
        vectors = np.empty((len(texts), dimension), dtype=np.float32)
        # Texts of like length share a batch, so that little of it is padding.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for begin in range(0, len(order), _BATCH_TEXTS):
            rows = order[begin : begin + _BATCH_TEXTS]
            vectors[rows] = self._forward([texts[row] for row in rows])
        return checked_unit_vectors(vectors, dimension)

    @contextmanager
    def on_device(self, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        """See `DeviceEmbedder`. The model is locked until the block ends."""
        with self._lock:
            if self._lean is None:
                with in_host_memory(encode(self._model, list(texts))) as vectors:
                    yield vectors
            else:
                yield self._lean.on_device(texts)

    def _forward(self, texts: list[str]) -> Vectors:
        with self._lock:
            return encode(self._model, texts) if self._lean is None else self._lean(texts)


def _tokenizer_for_counting(model: Any) -> Any:
    """A copy that never truncates and keeps no state, so that a count waits for no forward pass.

    None where the model's tokenizer is not of the library `tokenizers`.
    """
    tokenizer = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
    if tokenizer is None:
        return None
    counting = copy.deepcopy(tokenizer)
    counting.no_truncation()
    counting.no_padding()
    return counting


def encode(model: Any, texts: list[str]) -> Vectors:
    """What the model's own `encode` gives."""
    vectors = model.encode(
        texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True
    )
    return np.asarray(vectors, dtype=np.float32)
