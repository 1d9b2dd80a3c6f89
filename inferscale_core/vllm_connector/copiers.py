"""How a rank copies between arena and cache: fused kernels on a GPU, plain torch elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from inferscale_core.kernels.capture.reference import capture_quantised, capture_rows
from inferscale_core.kernels.compose.reference import compose_layer, compose_quantised
from inferscale_core.kernels.paged import (
    FIRST_CACHE_LINE,
    NULL_BLOCK,
    PAD_SLOT,
    KernelLayer,
    group_layers,
)
from inferscale_core.kv.cache_codes import decode
from inferscale_core.kv.rope import RotaryTable, Turn, rotation, shift, unrotation
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.copies import Copy
from inferscale_core.vllm_connector.launches import Kernels, open_launches
from inferscale_core.vllm_connector.layout import PagedLayer
from inferscale_core.vllm_connector.staging import plain_lines


class Copier(Protocol):
    """All take what a step copies at once, and issue their work on the current stream."""

    def inject(self, copies: Sequence[Copy]) -> None:
        """Arena rows to cache slots, keys moved to their positions."""

    def capture(self, copies: Sequence[Copy]) -> None:
        """Cache slots to arena rows, as the arena stores them."""


class TorchCopier:
    """Layer by layer, through the engine's own cache-write op: right on every backend.

    In an fp8 cache a moved key is rounded twice, to what the op takes and by the op.
    """

    def __init__(
        self,
        arena: Arena,
        layers: Sequence[PagedLayer],
        tables: Sequence[RotaryTable],
        biases: Sequence[Tensor | None] = (),
    ) -> None:
        self._arena = arena
        self.layers = layers
        self._tables = tables
        self._biases = biases or [None] * len(layers)
        self._num_groups = 1 + max(layer.group for layer in layers)

    def inject(self, copies: Sequence[Copy]) -> None:
        is_quantised = self._arena.layout.is_quantised
        for arena_slots, origins, positions, cache_slots, indices in self._by_group(copies):
            turns: dict[int, Turn] = {}
            for index in indices:
                table = self._tables[index]
                if id(table) not in turns:
                    turns[id(table)] = (
                        rotation(table, positions)
                        if is_quantised
                        else shift(table, origins, positions)
                    )
                moved = self._composed(arena_slots, index, turns[id(table)])
                self.layers[index].write(cache_slots, *moved)

    def capture(self, copies: Sequence[Copy]) -> None:
        for arena_slots, _, positions, cache_slots, indices in self._by_group(copies):
            for index in indices:
                part = self._captured(cache_slots, index, positions)
                self._arena.write_part(arena_slots, index, part)

    def _composed(self, arena_slots: Tensor, index: int, turn: Turn) -> tuple[Tensor, Tensor]:
        layer, layout = self.layers[index], self._arena.layout
        if layout.is_quantised:
            part = self._arena.read_part(arena_slots, index)
            shape, bias = layout.layers[index], self._biases[index]
            return compose_quantised(layout.storage, shape, part, turn, bias, layer.dtype)
        key, value = self._arena.read_layer(arena_slots, index)
        if layer.scales is None:
            return compose_layer(key, value, turn)
        key, value = (
            decode(raw.contiguous(), scale)
            for raw, scale in zip((key, value), layer.scales, strict=True)
        )
        moved, same = compose_layer(key, value, turn)
        return moved.to(layer.dtype), same.to(layer.dtype)

    def _captured(self, cache_slots: Tensor, index: int, positions: Tensor) -> Tensor:
        layer, layout = self.layers[index], self._arena.layout
        key, value = layer.read(cache_slots)
        if not layout.is_quantised:
            return capture_rows([(key, value)])
        key_scale, value_scale = layer.scales or (None, None)
        return capture_quantised(
            layout.storage,
            decode(key.contiguous(), key_scale),
            decode(value.contiguous(), value_scale),
            unrotation(self._tables[index], positions),
            self._biases[index],
        )

    def _by_group(
        self, copies: Sequence[Copy]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, list[int]]]:
        """For each KV cache group arena slots, origins, positions, cache slots, and its layers."""
        all_lines = plain_lines(copies).to(self._arena.rows.device)
        for group in range(self._num_groups):
            own = all_lines[[0, 1, 2, FIRST_CACHE_LINE + group]]
            # The engine's write op reads slots as if contiguous, whatever their strides.
            columns = own[:, own[3] != PAD_SLOT].contiguous()
            indices = [i for i, layer in enumerate(self.layers) if layer.group == group]
            yield columns[0], columns[1], columns[2], columns[3], indices


class FusedCopier:
    """One kernel for all alike layers and all requests of a step, and all kernels of a step in one
    launch. On a GPU, and for tests in Triton's interpreter."""

    def __init__(
        self,
        arena: Arena,
        layers: Sequence[PagedLayer],
        tables: Sequence[RotaryTable],
        biases: Sequence[Tensor | None] = (),
    ) -> None:
        from inferscale_core.kernels.capture.launch import prepare_capture
        from inferscale_core.kernels.compose.launch import prepare_compose
        from inferscale_core.kernels.expand.launch import Expand

        self.layers = layers
        biases = biases or [None] * len(layers)
        num_groups = 1 + max(layer.group for layer in layers)
        compose, capture = [], []
        for group in range(num_groups):
            members = [
                KernelLayer(i, layer.cache, layer.strides, tables[i], biases[i], layer.scales)
                for i, layer in enumerate(layers)
                if layer.group == group
            ]
            alike = group_layers(members, arena.layout, layers[0].block_size)
            compose.append(prepare_compose(arena.rows, alike, FIRST_CACHE_LINE + group))
            capture.append(prepare_capture(arena.rows, alike, FIRST_CACHE_LINE + group))
        expand = Expand(num_groups, layers[0].block_size)
        nothing = self._no_copy(num_groups)
        self.inject, self.capture = open_launches(
            [Kernels(expand, compose), Kernels(expand, capture)], arena.rows.device, nothing
        )

    def _no_copy(self, num_groups: int) -> Copy:
        """Of a token that every kernel skips."""
        piece = np.array([0, 1, 0], dtype=np.int32).tobytes()
        block_ids = tuple([NULL_BLOCK] for _ in range(num_groups))
        return Copy("", 0, 1, piece, block_ids, self.layers[0].block_size)


def open_copier(
    arena: Arena,
    layers: Sequence[PagedLayer],
    tables: Sequence[RotaryTable],
    biases: Sequence[Tensor | None] = (),
) -> Copier:
    """The fused kernels where they run: a GPU, and a layout with strides.

    biases: of each layer, what is taken from its keys before they are quantised; empty for none.
    """
    if arena.rows.is_cuda and all(layer.has_strides for layer in layers):
        return FusedCopier(arena, layers, tables, biases)
    return TorchCopier(arena, layers, tables, biases)
