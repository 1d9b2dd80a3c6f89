"""What a row of the arena is: one token, all layers of a rank, in one of four storages.

`cache` holds what the engine's cache held, bit for bit; the row's elements are the cache's:

    row: | layer 0: K heads x dim | layer 0: V heads x dim | layer 1: K … |

The others hold un-rotated keys, mostly without what the layer's keys have in common, and values,
both quantised (see `kv.quantise`); the row's elements are bytes, and every layer's part starts at a
multiple of 16:

    part: | K payload, heads x payload | V payload, heads x payload | K scales | V scales | pad |

with the scales in float16. A token's row depends on no other token, so it is written in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import assert_never

import torch

from inferscale_core.memory.recipes import Storage

PART_ALIGNMENT = 16
"""Bytes: the widest load of a GPU thread."""

INT4_GROUP = 64
"""Elements of a head that share a scale and a minimum in int4 storage."""

SCALE_BYTES = 2


@dataclass(frozen=True, slots=True)
class LayerShape:
    """KV heads of this rank and head dimension of one layer."""

    num_kv_heads: int
    head_dim: int

    @property
    def row_elements(self) -> int:
        return 2 * self.num_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class PartLayout:
    """Byte offsets within one layer's part of a quantised row.

    payload: bytes of one head of K or V. num_scales: float16 numbers beside it; for int4 the
    groups' scales and then their minimums.
    """

    shape: LayerShape
    payload: int
    num_scales: int

    @property
    def value_offset(self) -> int:
        return self.shape.num_kv_heads * self.payload

    @property
    def scale_offset(self) -> int:
        return 2 * self.value_offset

    @property
    def value_scale_offset(self) -> int:
        return self.scale_offset + self.shape.num_kv_heads * self.num_scales * SCALE_BYTES

    @property
    def num_bytes(self) -> int:
        end = self.value_scale_offset + self.shape.num_kv_heads * self.num_scales * SCALE_BYTES
        return -(-end // PART_ALIGNMENT) * PART_ALIGNMENT


def part_layout(storage: Storage, shape: LayerShape) -> PartLayout:
    """How one layer lies in a row of a quantised storage."""
    match storage:
        case Storage.INT4:
            groups = -(-shape.head_dim // INT4_GROUP)
            return PartLayout(shape, -(-shape.head_dim // 2), 2 * groups)
        case Storage.INT8 | Storage.FP8:
            return PartLayout(shape, shape.head_dim, 1)
        case Storage.CACHE:
            raise AssertionError("rows of the cache's dtype have no parts")
        case _:
            assert_never(storage)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """storage: what rows hold. dtype: of their elements. offsets: element at which each layer
    starts, and the row's end."""

    storage: Storage
    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    offsets: tuple[int, ...]

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.offsets[-1]

    @property
    def row_bytes(self) -> int:
        """Bytes of one token in the arena of one rank."""
        return self.width * self.dtype.itemsize

    @property
    def is_quantised(self) -> bool:
        return self.storage is not Storage.CACHE


def row_layout(
    layers: Sequence[LayerShape], cache_dtype: torch.dtype, storage: Storage = Storage.CACHE
) -> RowLayout:
    """The rows of a rank whose layers are `layers` and whose engine's cache is `cache_dtype`."""
    if storage is Storage.CACHE:
        dtype, sizes = cache_dtype, [layer.row_elements for layer in layers]
    else:
        dtype, sizes = torch.uint8, [part_layout(storage, layer).num_bytes for layer in layers]
    return RowLayout(storage, tuple(layers), dtype, (0, *accumulate(sizes)))
