"""Launches the expand kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from inferscale_core.kernels.expand.kernel import expand_kernel
from inferscale_core.kernels.expand.packed import HEADER_FIELDS, REQUEST_FIELDS, PackedShape
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, FIRST_LINE, NULL_BLOCK, PAD_SLOT
from inferscale_core.kv.pieces import PIECE_FIELDS, PIECE_TOKENS

PIECES_PER_PROGRAM = 8
COUNTED_AT_ONCE = 128
NUM_WARPS = 4


class Expand:
    """`expand` for copies of one engine, launched again and again."""

    def __init__(self, num_groups: int, block_size: int) -> None:
        self._constants = {
            "NUM_GROUPS": num_groups,
            "BLOCK_SIZE": block_size,
            "NULL_BLOCK": NULL_BLOCK,
            "PAD_SLOT": PAD_SLOT,
            "FIRST_LINE": FIRST_LINE,
            "FIRST_CACHE_LINE": FIRST_CACHE_LINE,
            "HEADER_FIELDS": HEADER_FIELDS,
            "PIECE_FIELDS": PIECE_FIELDS,
            "REQUEST_FIELDS": REQUEST_FIELDS,
            "PIECES": PIECES_PER_PROGRAM,
            "COUNTED": COUNTED_AT_ONCE,
            "PIECE_TOKENS": PIECE_TOKENS,
        }

    def __call__(self, packed: Tensor, copies: Tensor, num_programs: int) -> None:
        """packed: int32, on the device or in pinned memory, where the device reads it. copies:
        int64, contiguous, on the device: as many of its numbers are written as the packed copies'
        `num_numbers`. num_programs: at once; they do all there is to do, be it more or less."""
        expand_kernel[(num_programs,)](packed, copies, **self._constants, num_warps=NUM_WARPS)


def expand(packed: Tensor, shape: PackedShape, block_size: int, num_programs: int = 2) -> Tensor:
    """packed: [shape.length], int32, contiguous. Returns the list of copies whose lines
    `reference.expand_lines` gives: [shape.num_numbers], int64, on the same device."""
    if packed.dtype != torch.int32 or packed.shape != (shape.length,):
        wanted = f"int32 [{shape.length}]"
        raise ValueError(f"packed copies must be {wanted}, not {packed.dtype} {[*packed.shape]}")
    copies = torch.zeros(shape.num_numbers, dtype=torch.int64, device=packed.device)
    Expand(shape.num_groups, block_size)(packed, copies, num_programs)
    return copies
