"""Launches the expand kernel."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from inferscale_core.kernels.expand.kernel import expand_kernel
from inferscale_core.kernels.expand.packed import REQUEST_FIELDS, PackedShape
from inferscale_core.kernels.launching import Prepared
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, NULL_BLOCK, PAD_SLOT
from inferscale_core.kv.pieces import PIECE_FIELDS, PIECE_TOKENS

PIECES_PER_PROGRAM = 8
COUNTED_AT_ONCE = 128
NUM_WARPS = 4


class Expand:
    """`expand` for copies of one engine, launched again and again."""

    def __init__(self, num_groups: int, block_size: int) -> None:
        constants = {
            "NUM_GROUPS": num_groups,
            "BLOCK_SIZE": block_size,
            "NULL_BLOCK": NULL_BLOCK,
            "PAD_SLOT": PAD_SLOT,
            "FIRST_CACHE_LINE": FIRST_CACHE_LINE,
            "PIECE_FIELDS": PIECE_FIELDS,
            "REQUEST_FIELDS": REQUEST_FIELDS,
            "PIECES": PIECES_PER_PROGRAM,
            "COUNTED": COUNTED_AT_ONCE,
            "PIECE_TOKENS": PIECE_TOKENS,
        }
        self._kernel = Prepared(expand_kernel, constants, NUM_WARPS)

    def __call__(self, packed: Tensor, shape: PackedShape, lines: Tensor) -> None:
        """packed: int32, shape.length numbers or more, on the device or in pinned memory, where the
        device reads it. lines: int64, contiguous, on the device: the first shape.num_numbers of its
        numbers are written, as `Lines` has them."""
        self._kernel(
            (shape.num_requests, triton.cdiv(shape.max_pieces, PIECES_PER_PROGRAM)),
            packed,
            lines,
            shape.num_pieces,
            shape.num_requests,
            shape.num_blocks,
            shape.num_tokens,
        )


def expand(packed: Tensor, shape: PackedShape, block_size: int) -> Tensor:
    """As `reference.expand_lines`, on the device of packed: [shape.length], int32, contiguous."""
    if packed.dtype != torch.int32 or packed.shape != (shape.length,):
        wanted = f"int32 [{shape.length}]"
        raise ValueError(f"packed copies must be {wanted}, not {packed.dtype} {[*packed.shape]}")
    size = (shape.num_lines, shape.num_tokens)
    lines = torch.empty(size, dtype=torch.int64, device=packed.device)
    Expand(shape.num_groups, block_size)(packed, shape, lines)
    return lines
