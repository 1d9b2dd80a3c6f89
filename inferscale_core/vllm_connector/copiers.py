"""How a rank copies between arena and cache: fused kernels on a GPU, plain torch elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inferscale_core.kernels.capture.reference import capture_rows
from inferscale_core.kernels.compose.reference import compose_layer
from inferscale_core.kernels.paged import PagedGroup, group_layers
from inferscale_core.kv.rope import RotaryTable, Turn, shift
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.layout import PagedLayer
from inferscale_core.vllm_connector.metadata import PAD_SLOT, Copy


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
        for group, indices in self._groups(copies):
            arena_slots, cache_slots, origins, positions = self._columns(copies, group)
            turns: dict[int, Turn] = {}
            for index in indices:
                table = self._tables[index]
                if id(table) not in turns:
                    turns[id(table)] = shift(table, origins, positions)
                key, value = self._arena.read_layer(arena_slots, index)
                moved = compose_layer(key, value, turns[id(table)])
                self._layers[index].write(cache_slots, *moved)

    def capture(self, copies: Sequence[Copy]) -> None:
        for group, indices in self._groups(copies):
            arena_slots, cache_slots, _, _ = self._columns(copies, group)
            for index in indices:
                row = capture_rows([self._layers[index].read(cache_slots)])
                self._arena.write_part(arena_slots, index, row)

    def _groups(self, copies: Sequence[Copy]) -> Iterator[tuple[int, list[int]]]:
        for group in range(copies[0].cache_slots.shape[0]):
            yield group, [i for i, layer in enumerate(self._layers) if layer.group == group]

    def _columns(self, copies: Sequence[Copy], group: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values = joined(copies, group)
        # The engine's write op reads slots as if contiguous, whatever their strides.
        kept = np.ascontiguousarray(values[:, values[1] != PAD_SLOT])
        columns = torch.from_numpy(kept).to(self._arena.rows.device)
        return columns[0], columns[1], columns[2], columns[3]


class FusedCopier:
    """One kernel launch for all alike layers and all requests of a step. CUDA only."""

    def __init__(
        self, arena: Arena, layers: Sequence[PagedLayer], tables: Sequence[RotaryTable]
    ) -> None:
        self._arena = arena
        self._groups: list[tuple[int, list[PagedGroup]]] = []
        for group in sorted({layer.group for layer in layers}):
            indices = [i for i, layer in enumerate(layers) if layer.group == group]
            alike = group_layers(
                [layers[i].cache for i in indices],
                [layers[i].strides for i in indices],
                [arena.layers[i] for i in indices],
                [tables[i] for i in indices],
                [arena.layout.offsets[i] for i in indices],
                layers[0].block_size,
            )
            self._groups.append((group, alike))

    def inject(self, copies: Sequence[Copy]) -> None:
        from inferscale_core.kernels.compose.launch import compose

        for group, layers in self._groups:
            compose(self._arena.rows, layers, self._columns(copies, group))

    def capture(self, copies: Sequence[Copy]) -> None:
        from inferscale_core.kernels.capture.launch import capture

        for group, layers in self._groups:
            capture(self._arena.rows, layers, self._columns(copies, group))

    def _columns(self, copies: Sequence[Copy], group: int) -> Tensor:
        pinned = torch.from_numpy(joined(copies, group)).pin_memory()
        return pinned.to(self._arena.rows.device, non_blocking=True)


def open_copier(
    arena: Arena, layers: Sequence[PagedLayer], tables: Sequence[RotaryTable]
) -> Copier:
    """The fused kernels where they run: a GPU, and a layout with strides."""
    if arena.rows.is_cuda and all(layer.has_strides for layer in layers):
        return FusedCopier(arena, layers, tables)
    return TorchCopier(arena, layers, tables)


def joined(copies: Sequence[Copy], group: int) -> NDArray[np.int64]:
    """[4, num_tokens], int64: arena slot, the group's cache slot, origin, position."""
    return np.stack(
        [
            np.concatenate([copy.arena_slots for copy in copies]),
            np.concatenate([copy.cache_slots[group] for copy in copies]),
            np.concatenate([copy.origins for copy in copies]),
            np.concatenate([copy.positions for copy in copies]),
        ]
    )
