"""The nearest earlier facts of a fact: what stands before it while it is encoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from inferscale_core.ids import FactId
from inferscale_core.retrieval.similarity import best, similarities
from inferscale_core.retrieval.vectors import FactVectors

_BLOCK_ROWS = 256
"""Facts compared at once: bounds the scores held to 256 rows of the user's facts."""


def nearest_earlier(
    wanted: Iterable[FactId],
    order: Sequence[FactId],
    vectors: FactVectors,
    *,
    limit: int,
    begins: Sequence[int],
    num_skipped: int = 0,
) -> dict[FactId, tuple[FactId, ...]]:
    """For each wanted fact its `limit` most similar earlier facts, most similar first.

    order: the facts that may be chosen or wanted, earliest first. begins: for each place in it the
    first place that is looked at; from there on all before the wanted one are, without the
    `num_skipped` newest. Ties go to the older fact id. The same on every device: chunk keys depend
    on it.
    """
    wanted = list(wanted)
    if limit == 0 or not wanted:
        return dict.fromkeys(wanted, ())
    matrix = vectors.on_device()
    place_by_id = {fact_id: place for place, fact_id in enumerate(order)}
    never = len(order)
    places = torch.tensor(
        [place_by_id.get(fact_id, never) for fact_id in vectors.ids], device=matrix.device
    )
    chosen: dict[FactId, tuple[FactId, ...]] = {}
    for begin in range(0, len(wanted), _BLOCK_ROWS):
        block = wanted[begin : begin + _BLOCK_ROWS]
        rows = torch.tensor([vectors.row_of(fact_id) for fact_id in block], device=matrix.device)
        own = places[rows][:, None]
        allowed = places[None] < own - num_skipped
        if any(begins):
            first = [begins[place_by_id[fact_id]] for fact_id in block]
            allowed &= places[None] >= torch.tensor(first, device=matrix.device)[:, None]
        scores = similarities(matrix[rows], matrix).masked_fill_(~allowed, -torch.inf)
        indices = best(scores, limit)[1].tolist()
        counts = allowed.sum(dim=1).clamp(max=limit).tolist()
        for fact_id, row, count in zip(block, indices, counts, strict=True):
            chosen[fact_id] = tuple(vectors.ids[index] for index in row[:count])
    return chosen
