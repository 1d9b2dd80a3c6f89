"""A group of layers whose paged caches look alike, as the fused kernels address them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.rows import LayerShape


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
class PagedGroup:
    """Layers with one shape, one layout, one dtype and one kind of rotation.

    cache_ptrs, cos_ptrs, sin_ptrs, row_offsets: [num_layers], int64, on the caches' device: the
    address of each layer's cache and tables, and where the layer starts in an arena row. `kept`
    holds the tensors those addresses point into.
    """

    shape: LayerShape
    strides: Strides
    block_size: int
    dtype: torch.dtype
    rotary_dim: int
    is_neox: bool
    shares_table: bool
    cache_ptrs: Tensor
    cos_ptrs: Tensor
    sin_ptrs: Tensor
    row_offsets: Tensor
    kept: tuple[Tensor, ...]

    @property
    def num_layers(self) -> int:
        return self.cache_ptrs.shape[0]


def group_layers(
    caches: Sequence[Tensor],
    strides: Sequence[Strides],
    shapes: Sequence[LayerShape],
    tables: Sequence[RotaryTable],
    row_offsets: Sequence[int],
    block_size: int,
) -> list[PagedGroup]:
    """As few groups as the layers allow; one for most models."""
    members: dict[tuple[object, ...], list[int]] = {}
    for index, table in enumerate(tables):
        alike = (shapes[index], strides[index], caches[index].dtype, table.rotary_dim)
        members.setdefault((*alike, table.is_neox), []).append(index)
    return [
        _group(
            [caches[i] for i in indices],
            strides[indices[0]],
            shapes[indices[0]],
            [tables[i] for i in indices],
            [row_offsets[i] for i in indices],
            block_size,
        )
        for indices in members.values()
    ]


def _group(
    caches: Sequence[Tensor],
    strides: Strides,
    shape: LayerShape,
    tables: Sequence[RotaryTable],
    row_offsets: Sequence[int],
    block_size: int,
) -> PagedGroup:
    device = caches[0].device
    for table in tables:
        assert table.cos.is_contiguous()
        assert table.sin.is_contiguous()

    def column(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return PagedGroup(
        shape=shape,
        strides=strides,
        block_size=block_size,
        dtype=caches[0].dtype,
        rotary_dim=tables[0].rotary_dim,
        is_neox=tables[0].is_neox,
        shares_table=len({id(table) for table in tables}) == 1,
        cache_ptrs=column([cache.data_ptr() for cache in caches]),
        cos_ptrs=column([table.cos.data_ptr() for table in tables]),
        sin_ptrs=column([table.sin.data_ptr() for table in tables]),
        row_offsets=column(row_offsets),
        kept=(*caches, *(t for table in tables for t in (table.cos, table.sin))),
    )
