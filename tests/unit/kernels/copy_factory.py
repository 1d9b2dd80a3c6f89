"""Copies as they come from a busy engine, and what they mean token by token."""

from __future__ import annotations

import random

import numpy as np

from inferscale_core.kernels.paged import NULL_BLOCK, PAD_SLOT
from inferscale_core.kv.pieces import PIECE_TOKENS, pieces_of, rows_of
from inferscale_core.vllm_connector.copies import Copy

PAGE = 4


def random_copy(
    numbers: random.Random, num_groups: int = 2, block_size: int = 16
) -> tuple[Copy, np.ndarray]:
    """Chunks in pages here and there, and the lines of their tokens, told one by one."""
    position = numbers.randint(0, 5 * block_size)
    num_blocks = 20
    block_ids = tuple(
        [numbers.choice([NULL_BLOCK, numbers.randint(1, 99)]) for _ in range(num_blocks)]
        for _ in range(num_groups)
    )
    pieces, columns = b"", []
    for _ in range(numbers.randint(1, 4)):
        count, origin = numbers.randint(1, 2 * PIECE_TOKENS), numbers.randint(0, 500)
        pages = tuple(sorted(numbers.sample(range(40), -(-count // PAGE))))
        pieces += pieces_of(pages, PAGE, count, origin)
        for token, row in enumerate(rows_of(pages, PAGE)[:count]):
            place = position + len(columns)
            ids = [group[place // block_size] for group in block_ids]
            slots = [
                PAD_SLOT if i == NULL_BLOCK else i * block_size + place % block_size for i in ids
            ]
            columns.append([row, origin + token, place, *slots])
    first, end = position // block_size, (position + len(columns) - 1) // block_size + 1
    own = tuple(ids[first:end] for ids in block_ids)
    made = Copy("handle", position, len(columns), pieces, own, block_size)
    return made, np.array(columns).T
