"""What both kernels are launched with, and the checks before it."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferscale_core.kernels.paged import FIRST_CACHE_LINE, PagedGroup

_ELEMENT_TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.uint8: tl.uint8,
}


def check_copies(rows: Tensor, copies: Tensor, cache_line: int) -> None:
    """Raises ValueError that says what is wrong with the arena or the list of copies."""
    if rows.dim() != 2 or rows.stride(1) != 1:
        raise ValueError(f"arena rows must be contiguous, strides are {rows.stride()}")
    if copies.dtype != torch.int64 or copies.dim() != 2:
        raise ValueError(f"copies must be int64 lines, not {copies.dtype} {list(copies.shape)}")
    if not FIRST_CACHE_LINE <= cache_line < copies.shape[0]:
        raise ValueError(f"no cache slots in line {cache_line} of {copies.shape[0]}")
    if not copies.is_contiguous():
        raise ValueError("copies must be contiguous")
    if copies.device != rows.device:
        raise ValueError(f"copies are on {copies.device}, the arena on {rows.device}")


def check_group(rows: Tensor, group: PagedGroup) -> None:
    """Raises ValueError when the rows are not those that the group was made for."""
    if rows.dtype != group.row_dtype:
        raise ValueError(f"arena is {rows.dtype}, the layers' rows are {group.row_dtype}")
    if group.dtype not in _ELEMENT_TYPES or group.is_fp8 != (group.dtype == torch.uint8):
        raise ValueError(f"no kernel for a cache of {group.dtype}")


def common_arguments(
    rows: Tensor, group: PagedGroup, copies: Tensor, cache_line: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments and compile-time constants that both kernels take."""
    strides, shape = group.strides, group.shape
    arguments = (
        rows,
        group.cache_ptrs,
        group.cos_ptrs,
        group.sin_ptrs,
        group.row_offsets,
        group.cache_scales,
        rows if group.bias is None else group.bias,
        copies,
        cache_line,
        copies.shape[1],
        group.num_layers,
        rows.stride(0),
        strides.block,
        strides.head,
        strides.token,
        strides.dim,
        strides.value,
    )
    constants = {
        "NUM_HEADS": shape.num_kv_heads,
        "HEAD_DIM": shape.head_dim,
        "ROTARY_DIM": group.rotary_dim,
        "IS_NEOX": group.is_neox,
        "BLOCK_SIZE": group.block_size,
        "STORAGE": str(group.storage),
        "PAYLOAD": group.payload,
        "NUM_SCALES": group.num_scales,
        "HAS_BIAS": group.bias is not None,
        "CACHE_TYPE": _ELEMENT_TYPES[group.dtype],
        "CACHE_IS_FP8": group.is_fp8,
        "ROW_ALIGNMENT": group.row_alignment,
        "CACHE_ALIGNMENT": group.cache_alignment,
        "HEADS_PAD": triton.next_power_of_2(shape.num_kv_heads),
        "DIM_PAD": triton.next_power_of_2(shape.head_dim),
    }
    return arguments, constants
