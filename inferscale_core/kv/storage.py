"""The arena: one tensor whose rows are tokens.

A row holds key and value of one token for all layers of this rank, as the engine's cache held them
(the key rotated to the position at which it was computed, see `kv.rope`):

    row: | layer 0: K heads x dim | layer 0: V heads x dim | layer 1: K … |

so a chunk moves in as many copies as it has pages, and layers may differ in heads and dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerShape:
    """KV heads of this rank and head dimension of one layer."""

    num_kv_heads: int
    head_dim: int

    @property
    def row_elements(self) -> int:
        return 2 * self.num_kv_heads * self.head_dim


def row_bytes(layers: Sequence[LayerShape], dtype: torch.dtype) -> int:
    """Bytes of one token in the arena of one rank."""
    return sum(layer.row_elements for layer in layers) * dtype.itemsize


class Arena:
    """The rows of one rank. Only the rank's own thread touches it.

    rows: [num_rows, row_elements], cache dtype, zeros where no chunk is. offsets: where each layer
    starts in a row, and the row's end.
    """

    def __init__(
        self,
        num_rows: int,
        layers: Sequence[LayerShape],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.layers = tuple(layers)
        self.offsets = [0]
        for layer in self.layers:
            self.offsets.append(self.offsets[-1] + layer.row_elements)
        self.rows = torch.zeros(num_rows, self.offsets[-1], dtype=dtype, device=device)

    @property
    def num_bytes(self) -> int:
        return self.rows.numel() * self.rows.element_size()

    def read_layer(self, slots: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Copies of key and value of one layer, each [num_tokens, num_kv_heads, head_dim].

        slots: [num_tokens], int64. Layer by layer is faster than gathering whole rows first: that
        copy would not stay in the processor's cache.
        """
        shape = self.layers[layer]
        part = self._part(layer).index_select(0, slots)
        pair = part.view(-1, 2, shape.num_kv_heads, shape.head_dim)
        return pair[:, 0], pair[:, 1]

    def write(self, slots: Tensor, rows: Tensor) -> None:
        self.rows.index_copy_(0, slots, rows)

    def write_layer(self, slots: Tensor, layer: int, part: Tensor) -> None:
        """part: [num_tokens, elements of the layer's part of a row]."""
        self._part(layer).index_copy_(0, slots, part)

    def zero(self, slots: Tensor) -> None:
        self.rows.index_fill_(0, slots, 0)

    def _part(self, layer: int) -> Tensor:
        return self.rows[:, self.offsets[layer] : self.offsets[layer + 1]]
