"""How a rank copies between arena and cache: fused kernels on a GPU, plain torch elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inferscale_core.kernels.capture.reference import capture_rows
from inferscale_core.kernels.compose.reference import compose_layer
from inferscale_core.kernels.paged import group_layers
from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.layout import PagedLayer
from inferscale_core.vllm_connector.metadata import Copy


class Copier(Protocol):
    """Both take all copies of a step at once, and issue their work on the current stream."""

    def inject(self, copies: Sequence[Copy]) -> None:
        """Arena rows to cache slots, keys moved from origin to position."""

    def capture(self, copies: Sequence[Copy]) -> None:
        """Cache slots to arena rows, bitwise."""


class TorchCopier:
    """Layer by layer, through the engine's own cache-write op: right on every backend."""

    def __init__(
        self, arena: Arena, layers: Sequence[PagedLayer], tables: Sequence[RotaryTable]
    ) -> None:
        self._arena = arena
        self._layers = layers
        self._tables = tables

    def inject(self, copies: Sequence[Copy]) -> None:
        arena_slots, cache_slots, origins, positions = self._columns(copies)
        rows = self._arena.read(arena_slots)
        for index, (layer, table) in enumerate(zip(self._layers, self._tables, strict=True)):
            key, value = self._arena.key_value(rows, index)
            layer.write(cache_slots, *compose_layer(key, value, table, origins, positions))

    def capture(self, copies: Sequence[Copy]) -> None:
        arena_slots, cache_slots, _, _ = self._columns(copies)
        rows = capture_rows([layer.read(cache_slots) for layer in self._layers])
        self._arena.write(arena_slots, rows)

    def _columns(self, copies: Sequence[Copy]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        columns = torch.from_numpy(joined(copies)).to(self._arena.rows.device)
        return columns[0], columns[1], columns[2], columns[3]


class FusedCopier:
    """One kernel launch for all layers and requests of a step. CUDA only."""

    def __init__(
        self, arena: Arena, layers: Sequence[PagedLayer], tables: Sequence[RotaryTable]
    ) -> None:
        self._arena = arena
        self._groups = group_layers(
            [layer.cache for layer in layers],
            [layer.strides for layer in layers],
            arena.layers,
            tables,
            arena.offsets,
            layers[0].block_size,
        )

    def inject(self, copies: Sequence[Copy]) -> None:
        from inferscale_core.kernels.compose.launch import compose

        compose(self._arena.rows, self._groups, self._columns(copies))

    def capture(self, copies: Sequence[Copy]) -> None:
        from inferscale_core.kernels.capture.launch import capture

        capture(self._arena.rows, self._groups, self._columns(copies))

    def _columns(self, copies: Sequence[Copy]) -> Tensor:
        pinned = torch.from_numpy(joined(copies)).pin_memory()
        return pinned.to(self._arena.rows.device, non_blocking=True)


def open_copier(
    arena: Arena, layers: Sequence[PagedLayer], tables: Sequence[RotaryTable]
) -> Copier:
    """The fused kernels where they run: a GPU, and a layout with strides."""
    if arena.rows.is_cuda and all(layer.has_strides for layer in layers):
        return FusedCopier(arena, layers, tables)
    return TorchCopier(arena, layers, tables)


def joined(copies: Sequence[Copy]) -> NDArray[np.int64]:
    """[4, num_tokens], int64: arena slot, cache slot, origin, position of every token."""
    return np.stack(
        [
            np.concatenate([copy.arena_slots for copy in copies]),
            np.concatenate([copy.cache_slots for copy in copies]),
            np.concatenate([copy.origins for copy in copies]),
            np.concatenate([copy.positions for copy in copies]),
        ]
    )
