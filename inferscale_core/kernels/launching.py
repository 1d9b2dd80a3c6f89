"""What both kernels are launched with, and the checks before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from inferscale_core.kernels.paged import FIRST_CACHE_LINE, Lines, PagedGroup

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


_NO_HOOKS = (None, None, None)
"""What a profiler would be told, and whom to call before and behind a launch."""


class _Variant:
    """What a compiled kernel is launched with on this thread's device."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled  # Which unloads the function with itself.
        active = triton.runtime.driver.active
        self.device = active.get_current_device()
        self.stream_of = active.get_current_stream
        self.run = compiled.run
        self.function = compiled.function
        self.metadata = compiled.packed_metadata


def _address(argument: Any) -> Any:
    return argument.data_ptr() if isinstance(argument, Tensor) else argument


class Prepared:
    """One kernel with its constants, for launches that differ in what no variant depends on.

    Triton looks at every argument of every launch, in Python, to find the variant that was compiled
    for such ones, and calls the hooks of its profilers before and behind each. Here the first
    launch finds the variant, and those that follow go straight to its launcher, without hooks. They
    must have arguments of the same kinds, on the same device: tensors that begin at a multiple of
    16 bytes, as all new ones do, and integers that are the same or that the kernel does not
    specialise.

    Source: triton 3.6 and 3.9, compiler/compiler.py (CompiledKernel.__getitem__).
    """

    def __init__(
        self,
        kernel: Any,
        constants: Mapping[str, Any],
        num_warps: int,
        *,
        before: Sequence[Any] = (),
        behind: Sequence[Any] = (),
    ) -> None:
        """before, behind: arguments that are the same in every launch and stand around the others.
        Tensors among them are kept."""
        self._kernel = kernel
        self._constants = {n: constants[n] for n in kernel.arg_names if n in constants}
        self._num_warps = num_warps
        self._before, self._behind = before, behind
        # A tensor is asked for its address, and the driver about that, at every launch.
        self._first = [*map(_address, before)]
        self._last = [*behind, *self._constants.values()]
        self._variant: _Variant | None = None

    def __call__(self, grid: tuple[int, int], *arguments: Any) -> None:
        """arguments: the others that are no constants, in the kernel's order."""
        variant = self._variant
        if variant is None:
            compiled = self._kernel[grid](
                *self._before,
                *arguments,
                *self._behind,
                **self._constants,
                num_warps=self._num_warps,
            )
            if compiled is not None:  # The interpreter has no variants.
                self._variant = _Variant(compiled)
            return
        variant.run(
            *grid,
            1,
            variant.stream_of(variant.device),
            variant.function,
            variant.metadata,
            *_NO_HOOKS,
            *self._first,
            *map(_address, arguments),
            *self._last,
        )


class CacheLaunch:
    """A kernel over the tokens and layers of one arena and the engine's caches, launched again and
    again: once for each group."""

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
        self._cache_line = cache_line
        self._kept = tuple(groups)  # What the kernels are told the addresses of.
        self._launches = []
        for group in groups:
            check_group(rows, group)
            before, behind = common_arguments(rows, group)
            prepared = Prepared(kernel, constants(group), num_warps, before=before, behind=behind)
            programs = triton.cdiv(group.num_layers, layers_per_program)
            self._launches.append((prepared, programs))

    def __call__(self, copies: Lines) -> None:
        """copies: as of the kernel's own module, which looks at them; here they are taken as they
        are."""
        numbers, num_tokens = copies
        if num_tokens == 0:
            return
        for prepared, programs in self._launches:
            prepared((num_tokens, programs), numbers, self._cache_line, num_tokens)


def common_arguments(rows: Tensor, group: PagedGroup) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What stands before and behind `copies`, `cache_line` and `num_tokens` among the arguments
    that both kernels take."""
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
        "HEADS_PAD": triton.next_power_of_2(shape.num_kv_heads),
        "DIM_PAD": triton.next_power_of_2(shape.head_dim),
    }
