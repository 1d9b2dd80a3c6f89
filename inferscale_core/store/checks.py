"""Input that Postgres cannot hold, refused before any SQL."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inferscale_core.errors import InvalidInput

Embedding: TypeAlias = npt.NDArray[np.float32]
"""One vector: float32 [dimension]."""


def checked_text(field: str, text: str) -> str:
    """Raises InvalidInput for NUL and for lone surrogates, which have no UTF-8 form."""
    if "\0" in text:
        raise InvalidInput(field, "holds the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInput(field, "is not valid Unicode text") from exc
    return text


def checked_embedding(embedding: Embedding, dimension: int) -> Embedding:
    """Raises InvalidInput for another shape and for a zero, NaN or infinite vector.

    Cosine distance to such a vector is NaN, and an index that holds one answers wrongly.
    """
    vector = np.asarray(embedding, dtype=np.float32)
    if vector.shape != (dimension,):
        raise InvalidInput("embedding", f"shape {vector.shape} is not ({dimension},)")
    if not np.isfinite(vector).all():
        raise InvalidInput("embedding", "has a NaN or infinite component")
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if norm < 1e-6:
        raise InvalidInput("embedding", "is zero")
    return vector
