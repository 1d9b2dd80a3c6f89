"""Where tokens lie, in short: a piece is consecutive tokens in consecutive rows.

Three numbers, int32: first row, number of tokens, and where the first token was when its key was
computed (its origin). The others follow.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

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


def pieces_of(pages: tuple[int, ...], page_tokens: int, num_tokens: int, origin: int) -> bytes:
    """Neighbouring pages make one piece, as far as a piece may be long."""
    numbers = array("i")
    done = index = 0
    while index < len(pages):
        first = index
        index += 1
        while index < len(pages) and pages[index] == pages[index - 1] + 1:
            index += 1
        end = min(done + (index - first) * page_tokens, num_tokens)
        row = pages[first] * page_tokens - done
        for start in range(done, end, PIECE_TOKENS):
            count = min(PIECE_TOKENS, end - start)
            numbers.extend((row + start, count, origin + start))
        done = end
    return numbers.tobytes()
