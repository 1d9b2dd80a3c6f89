"""What expand computes, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from inferscale_core.kernels.expand.packed import Ints, PackedShape
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, NULL_BLOCK, PAD_SLOT


def expand_lines(packed: Ints, shape: PackedShape, block_size: int) -> NDArray[np.int64]:
    """[3 + num_groups, num_tokens], int64: each token's arena row, origin and position, then its
    slot in each KV cache group, PAD_SLOT where the group holds no block for it any more."""
    pieces, requests, block_ids = shape.parts(packed)
    lines = np.empty((shape.num_lines, shape.num_tokens), dtype=np.int64)
    tokens = np.arange(shape.num_tokens)
    counts = pieces[:, 1]
    assert counts.sum() == shape.num_tokens, "more or fewer tokens than positions"
    within = tokens - np.repeat(np.cumsum(counts) - counts, counts)
    lines[0] = np.repeat(pieces[:, 0], counts) + within
    lines[1] = np.repeat(pieces[:, 2], counts) + within
    per_request = np.add.reduceat(counts, requests[:, 0])
    lines[2] = tokens + np.repeat(requests[:, 3] - requests[:, 2], per_request)
    blocks = lines[2] // block_size + np.repeat(requests[:, 4], per_request)
    for line, ids in zip(lines[FIRST_CACHE_LINE:], block_ids, strict=True):
        found = ids[blocks].astype(np.int64)
        slots = found * block_size + lines[2] % block_size
        line[:] = np.where(found == NULL_BLOCK, PAD_SLOT, slots)
    return lines
