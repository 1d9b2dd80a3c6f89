"""How a rank copies between arena and cache: fused kernels on a GPU, plain torch elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from inferscale_core.kernels.capture.reference import capture_quantised, capture_rows
from inferscale_core.kernels.compose.reference import compose_layer, compose_quantised
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, KernelLayer, PagedGroup, group_layers
from inferscale_core.kv.cache_codes import decode
from inferscale_core.kv.rope import RotaryTable, Turn, rotation, shift, unrotation
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.layout import PagedLayer
from inferscale_core.vllm_connector.metadata import PAD_SLOT, Copy
from inferscale_core.vllm_connector.staging import open_sender, plain_lines


class Copier(Protocol):
    """Both take all copies of a step at once, and issue their work on the current stream."""

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
        lines = plain_lines(copies, self._num_groups)
        for group in range(self._num_groups):
            own = lines[[0, 1, 2, FIRST_CACHE_LINE + group]]
            # The engine's write op reads slots as if contiguous, whatever their strides.
            kept = own[:, own[3] != PAD_SLOT].contiguous()
            columns = kept.to(self._arena.rows.device)
            indices = [i for i, layer in enumerate(self.layers) if layer.group == group]
            yield columns[0], columns[1], columns[2], columns[3], indices


class FusedCopier:
    """One kernel launch for all alike layers and all requests of a step. On a GPU, and for tests
    in Triton's interpreter."""

    def __init__(
        self,
        arena: Arena,
        layers: Sequence[PagedLayer],
        tables: Sequence[RotaryTable],
        biases: Sequence[Tensor | None] = (),
    ) -> None:
        self._arena = arena
        self.layers = layers
        self._groups: list[tuple[int, list[PagedGroup]]] = []
        biases = biases or [None] * len(layers)
        num_groups = 1 + max(layer.group for layer in layers)
        for group in range(num_groups):
            members = [
                KernelLayer(i, layer.cache, layer.strides, tables[i], biases[i], layer.scales)
                for i, layer in enumerate(layers)
                if layer.group == group
            ]
            alike = group_layers(members, arena.layout, layers[0].block_size)
            self._groups.append((FIRST_CACHE_LINE + group, alike))
        self._send = open_sender(arena.rows.device, num_groups)
        self._compile(num_groups)

    def inject(self, copies: Sequence[Copy]) -> None:
        from inferscale_core.kernels.compose.launch import compose

        lines = self._send(copies)
        for cache_line, layers in self._groups:
            compose(self._arena.rows, layers, lines, cache_line)

    def capture(self, copies: Sequence[Copy]) -> None:
        from inferscale_core.kernels.capture.launch import capture

        lines = self._send(copies)
        for cache_line, layers in self._groups:
            capture(self._arena.rows, layers, lines, cache_line)

    def _compile(self, num_groups: int) -> None:
        """Launch both kernels with a token that they skip: the first request need not wait."""
        lines = np.zeros((FIRST_CACHE_LINE + num_groups, 1), dtype=np.int64)
        lines[FIRST_CACHE_LINE:] = PAD_SLOT
        skipped = [Copy("", lines)]
        self.inject(skipped)
        self.capture(skipped)


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
