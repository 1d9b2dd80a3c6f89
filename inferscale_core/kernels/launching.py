"""What both kernels are launched with, and the checks before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferscale_core.kernels.paged import FIRST_LINE, PagedGroup

_ELEMENT_TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.uint8: tl.uint8,
}


def check_copies(rows: Tensor, copies: Tensor) -> None:
    """Raises ValueError that says what is wrong with the arena or the list of copies."""
    if rows.dim() != 2 or rows.stride(1) != 1:
        raise ValueError(f"arena rows must be contiguous, strides are {rows.stride()}")
    if copies.dtype != torch.int64 or copies.dim() != 1:
        raise ValueError(f"copies must be a list, int64, not {copies.dtype} {list(copies.shape)}")
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


class CacheLaunch:
    """A kernel over the tokens and layers of one arena and the engine's caches: one launch for each
    group."""

    def __init__(
        self,
        kernel: Any,
        constants: Callable[[PagedGroup], Mapping[str, Any]],
        rows: Tensor,
        groups: Sequence[PagedGroup],
        cache_line: int,
        layers_per_program: int,
        num_warps: int,
    ) -> None:
        """Raises ValueError for rows that a group was not made for."""
        self._kernel, self._num_warps = kernel, num_warps
        self._cache_line = cache_line
        self._kept = tuple(groups)  # What the kernels are told the addresses of.
        self._launches = []
        for group in groups:
            check_group(rows, group)
            programs = triton.cdiv(group.num_layers, layers_per_program)
            self._launches.append((programs, *common_arguments(rows, group), constants(group)))

    def __call__(self, copies: Tensor, num_programs: int) -> None:
        """copies: see `paged.as_list`; not checked, as it is by `compose` and `capture`.
        num_programs: for each few layers, at once; they do all tokens, be it more or less."""
        for programs, before, behind, constants in self._launches:
            self._kernel[(num_programs, programs)](
                *before, copies, self._cache_line, *behind, **constants, num_warps=self._num_warps
            )


def common_arguments(rows: Tensor, group: PagedGroup) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What stands before and behind `copies` and `cache_line` among the arguments that both kernels
    take."""
    strides = group.strides
    before = (
        rows,
        group.cache_ptrs,
        group.cos_ptrs,
        group.sin_ptrs,
        group.row_offsets,
        group.cache_scales,
        rows if group.bias is None else group.bias,
    )
    behind = (
        group.num_layers,
        rows.stride(0),
        strides.block,
        strides.head,
        strides.token,
        strides.dim,
        strides.value,
    )
    return before, behind


def common_constants(group: PagedGroup) -> dict[str, Any]:
    """Compile-time constants that both kernels take."""
    shape = group.shape
    return {
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
        "FIRST_LINE": FIRST_LINE,
        "HEADS_PAD": triton.next_power_of_2(shape.num_kv_heads),
        "DIM_PAD": triton.next_power_of_2(shape.head_dim),
    }
