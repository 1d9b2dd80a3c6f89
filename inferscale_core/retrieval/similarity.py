"""Cosine similarity that does not depend on how it was summed.

Components are rounded to multiples of 2^-24. Their products are then multiples of 2^-48, and a sum
of them for unit vectors stays below 2 in magnitude: float64 holds every partial sum exactly. So one
pair of vectors has one similarity, on any device, with any number of rows or threads, and a ranking
computed step by step equals one computed at once. The rounding moves a similarity by about 1e-7.
"""

from __future__ import annotations

import torch

from inferscale_core.errors import InvalidInput

_STEP = 2.0**-24
_NORM_TOLERANCE = 1e-3
"""Unit vectors in float32 miss 1 by 1e-6 at most; one that misses by more was never normalised."""


def as_exact(vectors: torch.Tensor) -> torch.Tensor:
    """[..., dimension] float32 unit vectors, each component rounded to a multiple of 2^-24.

    Raises InvalidInput for a vector that is not finite and of norm 1.
    """
    norms = vectors.double().norm(dim=-1)
    # A NaN compares false.
    if not bool(((norms - 1.0).abs() < _NORM_TOLERANCE).all()):
        raise InvalidInput("embedding", "a vector is not finite and of norm 1")
    return (vectors.double() / _STEP).round().mul(_STEP).float()


def similarities(queries: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """[num_queries, num_rows] float64, exact for vectors from `as_exact`."""
    return queries.double() @ rows.double().T


def rank(scores: torch.Tensor, limit: int) -> list[int]:
    """Indices of the `limit` greatest of [num_rows] scores, greatest first; ties by index."""
    indices: list[int] = torch.sort(scores, descending=True, stable=True).indices[:limit].tolist()
    return indices
