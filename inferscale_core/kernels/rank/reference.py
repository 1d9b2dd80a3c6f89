"""What rank computes, in torch: the most similar rows, as numbers that sort with their rows.

Components of vectors are multiples of STEP, so their products are multiples of STEP^2 and a sum of
them for unit vectors stays below 2 in magnitude: float64 holds it exactly, in whatever order it was
summed. Such a similarity takes 49 bits and a sign. With the row in the bits that are left it makes
one number, which sorts by similarity and then by row, the first of equal ones first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

STEP = 2.0**-24
MAX_RANKED_ROWS = 2**14
"""Rows that the bits which a similarity leaves tell apart."""

NO_ROW = -(2**63 - 1)
"""Less than the number of any row."""


def similarities(queries: Tensor, rows: Tensor) -> Tensor:
    """[num_queries, num_rows] float64, exact for exact vectors."""
    return queries.double() @ rows.double().T


def rank_numbers(scores: Tensor) -> Tensor:
    """Of [num_rows] exact similarities, int64; for up to MAX_RANKED_ROWS rows."""
    num_rows = len(scores)
    assert num_rows <= MAX_RANKED_ROWS
    # A power of two, so nothing is rounded, and a similarity below 2 stays below 2^63.
    steps = (scores * (MAX_RANKED_ROWS / STEP**2)).long()
    last = MAX_RANKED_ROWS - 1
    return steps + torch.arange(last, last - num_rows, -1, device=scores.device)


def rank(queries: Tensor, rows: Sequence[Tensor], limit: int) -> Tensor:
    """[num_queries, k], int64: of each query the numbers of its most similar rows, greatest first.

    queries: [num_queries, dimension], float32, exact. rows: of each query its own, [num_rows,
    dimension], likewise. k: limit, or as many as the largest of `rows` has; a query with fewer has
    NO_ROW behind them.
    """
    width = max(map(len, rows))
    numbers = queries.new_full((len(rows), width), NO_ROW, dtype=torch.int64)
    for own, query, table in zip(numbers, queries, rows, strict=True):
        own[: len(table)] = rank_numbers(similarities(query[None], table)[0])
    return torch.topk(numbers, min(limit, width)).values
