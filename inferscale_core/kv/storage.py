"""The arena: one tensor whose rows are tokens, see `kv.rows`.

A chunk moves in as many copies as it has pages, and layers may differ in heads and dimension. Who
moves rows between tiers takes and gives them whole (`gather`, `scatter`) and looks into none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inferscale_core.kv.rows import LayerShape, RowLayout


class Arena:
    """The rows of one rank. Only the rank's own thread touches it.

    rows: [num_rows, layout.width], the layout's dtype, zeros where no chunk is.
    """

    def __init__(self, num_rows: int, layout: RowLayout, device: torch.device) -> None:
        self.layout = layout
        self.rows = torch.zeros(num_rows, layout.width, dtype=layout.dtype, device=device)

    @property
    def layers(self) -> tuple[LayerShape, ...]:
        return self.layout.layers

    @property
    def row_bytes(self) -> int:
        return self.layout.row_bytes

    @property
    def num_bytes(self) -> int:
        return self.rows.numel() * self.rows.element_size()

    def gather(self, slots: Tensor) -> Tensor:
        """Whole rows, as they are: [num_tokens, width], newly allocated. slots: int64, on the
        arena's device."""
        return self.rows.index_select(0, slots)

    def scatter(self, slots: Tensor, rows: Tensor) -> None:
        """Puts back what `gather` gave, here or in another arena of the same layout."""
        self.rows.index_copy_(0, slots, rows)

    def zero(self, slots: Tensor) -> None:
        self.rows.index_fill_(0, slots, 0)

    def part(self, layer: int) -> Tensor:
        """View of one layer's part of every row: [num_rows, elements of the part]."""
        return self.rows[:, self.layout.offsets[layer] : self.layout.offsets[layer + 1]]

    def read_part(self, slots: Tensor, layer: int) -> Tensor:
        """Copy of one layer's part: [num_tokens, elements of the part].

        Layer by layer is faster than gathering whole rows first: that copy would not stay in the
        processor's cache.
        """
        return self.part(layer).index_select(0, slots)

    def read_layer(self, slots: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Copies of key and value of one layer of cache storage, each [num_tokens, num_kv_heads,
        head_dim]."""
        shape = self.layers[layer]
        pair = self.read_part(slots, layer).view(-1, 2, shape.num_kv_heads, shape.head_dim)
        return pair[:, 0], pair[:, 1]

    def write_part(self, slots: Tensor, layer: int, part: Tensor) -> None:
        self.part(layer).index_copy_(0, slots, part)
