"""A group of layers whose paged caches look alike, as the fused kernels address them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.rows import PART_ALIGNMENT, LayerShape, RowLayout, part_layout
from inferscale_core.memory.recipes import Storage

FIRST_CACHE_LINE = 3
"""Lines of a list of copies: arena slot, origin, position, then cache slots, one line for each KV
cache group of the engine."""

FIRST_LINE = 16
"""Where the lines of a list of copies begin."""

PAD_SLOT = -1
"""No slot; skipped."""

NULL_BLOCK = 0
"""Stands where a sliding window has given up a block. Source: vLLM, v1/core/block_pool.py."""


def as_list(lines: Tensor) -> Tensor:
    """A list of copies as the kernels read it: int64, the number of its tokens first, and from
    FIRST_LINE on lines: [lines, num_tokens], int64."""
    head = lines.new_zeros(FIRST_LINE)
    head[0] = lines.shape[1]
    return torch.cat([head, lines.reshape(-1)])


@dataclass(frozen=True, slots=True)
class Strides:
    """Element strides of the logical view (block, head, token of a block, dim) of the keys; the
    value of the same place is `value` elements further."""

    block: int
    head: int
    token: int
    dim: int
    value: int


@dataclass(frozen=True, slots=True)
class KernelLayer:
    """One layer as the kernels need it.

    index: of the layer in an arena row. bias: [num_kv_heads, head_dim], what its keys have in
    common and are quantised without where that helps, or None. cache_scales: by which an fp8 cache
    (dtype uint8) multiplies keys and values; None for a cache of another dtype.
    """

    index: int
    cache: Tensor
    strides: Strides
    table: RotaryTable
    bias: Tensor | None = None
    cache_scales: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class PagedGroup:
    """Layers with one shape, one layout, one dtype and one kind of rotation.

    cache_ptrs, cos_ptrs, sin_ptrs, row_offsets: [num_layers], int64, on the caches' device: the
    address of each layer's cache and tables, and where the layer starts in an arena row. bias:
    [num_layers, num_kv_heads, head_dim], or None when no layer has one. cache_scales: [num_layers,
    2], float32. payload, num_scales: of a head in a quantised row. row_alignment: elements,
    cache_alignment: bytes, that divide every offset in a row and every address. `kept` holds the
    tensors that the addresses point into.
    """

    shape: LayerShape
    storage: Storage
    row_dtype: torch.dtype
    strides: Strides
    block_size: int
    dtype: torch.dtype
    rotary_dim: int
    is_neox: bool
    shares_table: bool
    is_fp8: bool
    cache_ptrs: Tensor
    cos_ptrs: Tensor
    sin_ptrs: Tensor
    row_offsets: Tensor
    bias: Tensor | None
    cache_scales: Tensor
    payload: int
    num_scales: int
    row_alignment: int
    cache_alignment: int
    kept: tuple[Tensor, ...]

    @property
    def num_layers(self) -> int:
        return self.cache_ptrs.shape[0]


def group_layers(
    layers: Sequence[KernelLayer], rows: RowLayout, block_size: int
) -> list[PagedGroup]:
    """As few groups as the layers allow; one for most models."""
    members: dict[tuple[object, ...], list[KernelLayer]] = {}
    for layer in layers:
        alike = (rows.layers[layer.index], layer.strides, layer.cache.dtype)
        turns = (layer.table.rotary_dim, layer.table.is_neox, layer.cache_scales is None)
        members.setdefault((*alike, *turns), []).append(layer)
    return [_group(group, rows, block_size) for group in members.values()]


def _group(layers: Sequence[KernelLayer], rows: RowLayout, block_size: int) -> PagedGroup:
    first = layers[0]
    device, shape = first.cache.device, rows.layers[first.index]
    offsets = [rows.offsets[layer.index] for layer in layers]
    addresses = [layer.cache.data_ptr() for layer in layers]
    tables = [layer.table for layer in layers]
    for table in tables:
        assert table.cos.is_contiguous()
        assert table.sin.is_contiguous()

    def column(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    part = part_layout(rows.storage, shape) if rows.is_quantised else None
    scales = [layer.cache_scales or (1.0, 1.0) for layer in layers]
    return PagedGroup(
        shape=shape,
        storage=rows.storage,
        row_dtype=rows.dtype,
        strides=first.strides,
        block_size=block_size,
        dtype=first.cache.dtype,
        rotary_dim=first.table.rotary_dim,
        is_neox=first.table.is_neox,
        shares_table=len({id(table) for table in tables}) == 1,
        is_fp8=first.cache_scales is not None,
        cache_ptrs=column(addresses),
        cos_ptrs=column([table.cos.data_ptr() for table in tables]),
        sin_ptrs=column([table.sin.data_ptr() for table in tables]),
        row_offsets=column(offsets),
        bias=_biases(layers, shape) if rows.is_quantised else None,
        cache_scales=torch.tensor(scales, dtype=torch.float32, device=device),
        payload=part.payload if part else 0,
        num_scales=part.num_scales if part else 0,
        row_alignment=math.gcd(PART_ALIGNMENT, *offsets),
        cache_alignment=math.gcd(PART_ALIGNMENT, *addresses),
        kept=(
            *(layer.cache for layer in layers),
            *(t for table in tables for t in (table.cos, table.sin)),
        ),
    )


def _biases(layers: Sequence[KernelLayer], shape: LayerShape) -> Tensor | None:
    """One tensor, zeros for a layer without one; None when there is none at all."""
    found = [layer.bias for layer in layers if layer.bias is not None]
    if not found:
        return None
    zeros = torch.zeros(shape.num_kv_heads, shape.head_dim).to(found[0])
    parts = [zeros if layer.bias is None else layer.bias for layer in layers]
    return torch.stack(parts).contiguous()
