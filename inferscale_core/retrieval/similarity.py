"""Cosine similarity that does not depend on how it was summed.

Components are rounded to multiples of 2^-24. Their products are then multiples of 2^-48, and a sum
of them for unit vectors stays below 2 in magnitude: float64 holds every partial sum exactly. So one
pair of vectors has one similarity, on any device, with any number of rows or threads, and a ranking
computed step by step equals one computed at once. The rounding moves a similarity by about 1e-7.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from inferscale_core.errors import InvalidInput
from inferscale_core.kernels.rank.reference import (
    MAX_RANKED_ROWS,
    STEP,
    rank_numbers,
    similarities,
)

__all__ = ["MAX_RANKED_ROWS", "as_exact", "best", "on_steps", "ranks", "similarities", "unranked"]

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
    return on_steps(vectors).float()


def on_steps(vectors: torch.Tensor) -> torch.Tensor:
    """float64, rounded to multiples of 2^-24, without a look at the norm. Waits for no device."""
    return (vectors.double() / STEP).round().mul(STEP)


def best(scores: torch.Tensor, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices of the `limit` greatest of each row of [..., num_rows] scores.

    Both [..., min(limit, num_rows)], greatest first, ties by index. Waits for no device. Sorting
    only what was chosen is 10 times faster than sorting 10,000 scores on a CPU.
    """
    num_rows = scores.shape[-1]
    limit = min(limit, num_rows)
    indices = torch.arange(num_rows, device=scores.device).expand(scores.shape)
    if limit < num_rows:
        chosen = _chosen(scores, limit)
        # The chosen ones in their order, all others into one place that is then cut off.
        places = torch.where(chosen, chosen.cumsum(-1) - 1, limit)
        room = indices.new_zeros((*scores.shape[:-1], limit + 1))
        indices = room.scatter_(-1, places, indices)[..., :limit]
        scores = scores.gather(-1, indices)
    ranked = torch.sort(scores, dim=-1, descending=True, stable=True)
    return ranked.values, indices.gather(-1, ranked.indices)


def ranks(scores: torch.Tensor, limit: int) -> torch.Tensor:
    """The `limit` greatest of [num_rows] exact similarities, with their rows, greatest first.

    [min(limit, num_rows)], int64, see `kernels.rank.reference`; `unranked` takes them apart. For up
    to MAX_RANKED_ROWS rows; on a GPU a third of the operations of `best`, which take longer to
    launch than to run.
    """
    return torch.topk(rank_numbers(scores), min(limit, len(scores))).values


def unranked(numbers: Iterable[int]) -> list[tuple[int, float]]:
    """Row and similarity of each."""
    last = MAX_RANKED_ROWS - 1
    return [(last - (number & last), (number // MAX_RANKED_ROWS) * STEP**2) for number in numbers]


def _chosen(scores: torch.Tensor, limit: int) -> torch.Tensor:
    """Which scores are among the `limit` greatest; of those equal to the least, the first ones."""
    if limit == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    least = torch.topk(scores, limit, dim=-1).values[..., -1:]
    above, level = scores > least, scores == least
    return above | (level & (level.cumsum(-1) <= limit - above.sum(-1, keepdim=True)))
