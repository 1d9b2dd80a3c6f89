"""Where tokens lie, in short: a piece is consecutive tokens in consecutive rows.

Three numbers, int32: first row, number of tokens, and where the first token was when its key was
computed (its origin). The others follow.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PIECE_TOKENS = 32
"""At most."""

PIECE_FIELDS = 3
PIECE_BYTES = PIECE_FIELDS * np.dtype(np.int32).itemsize

MAX_ROWS = 2**31
"""That a piece can name."""


def rows_of(pages: Sequence[int], page_tokens: int) -> NDArray[np.int64]:
    """The rows of the pages, int64, in order."""
    first = np.array(pages, dtype=np.int64)[:, None] * page_tokens
    return (first + np.arange(page_tokens)).reshape(-1)


def pieces_of(pages: Sequence[int], page_tokens: int, num_tokens: int, origin: int) -> bytes:
    """pages: ascending. Neighbouring ones make one piece, as far as a piece may be long."""
    numbers = array("i")
    for first, done, end in _runs(pages, page_tokens, num_tokens):
        row = first * page_tokens - done
        for start in range(done, end, PIECE_TOKENS):
            numbers.extend((row + start, min(PIECE_TOKENS, end - start), origin + start))
    return numbers.tobytes()


def _runs(
    pages: Sequence[int], page_tokens: int, num_tokens: int
) -> Iterable[tuple[int, int, int]]:
    """Neighbouring pages: the first, and the first token and the end of what they hold."""
    if pages[-1] - pages[0] == len(pages) - 1:  # In order, as most are.
        return [(pages[0], 0, num_tokens)]
    runs, first = [], 0
    for index in range(1, len(pages) + 1):
        if index == len(pages) or pages[index] != pages[index - 1] + 1:
            end = min(index * page_tokens, num_tokens)
            runs.append((pages[first], first * page_tokens, end))
            first = index
    return runs
