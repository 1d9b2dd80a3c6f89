"""The half of the connector that runs in every rank: copies what the step's metadata names.

It decides nothing. Before the forward pass it zeroes freed rows and injects; after it, it captures.
Per-layer hooks are not used: the engine skips them when it replays a full CUDA graph.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kernels.capture.reference import capture_rows
from inferscale_core.kernels.compose.reference import compose_layer
from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.layout import PagedLayer, open_layer
from inferscale_core.vllm_connector.metadata import Copy, StepDone, StepMetadata
from inferscale_core.vllm_connector.rotary import find_tables


class WorkerSide:
    """States: built, registered (has the engine's caches), started (has the rotary tables).

    Only a started one may copy. Called by the rank's own thread.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._caches: dict[str, Tensor] = {}
        self._layers: list[PagedLayer] = []
        self.tables: list[RotaryTable] = []
        self._arena: Arena | None = None
        self._inject_ms: dict[int, float] = {}

    def register(self, caches: dict[str, Tensor]) -> None:
        missing = set(self._config.layer_names) - caches.keys()
        if missing:
            raise Unsupported(f"the engine gave no cache for layer {min(missing)}")
        self._caches = caches

    def start(self, model: nn.Module, attention_by_name: dict[str, nn.Module], max_len: int) -> str:
        """Find layouts and rotary tables; allocate the arena. Returns a line for the log.

        Raises Unsupported by name. Call once, while the engine is idle.
        """
        config = self._config
        first = self._caches[config.layer_names[0]]
        tables = find_tables(model, config.layer_names, first.device, max_len)
        self._layers = [
            open_layer(name, attention_by_name[name], self._caches[name], shape, config.block_size)
            for name, shape in zip(config.layer_names, config.layers, strict=True)
        ]
        self.tables = [tables[name] for name in config.layer_names]
        self._arena = Arena(config.num_rows, config.layers, config.dtype, first.device)
        readers = sorted({layer.reader for layer in self._layers})
        return (
            f"{len(self._layers)} layers, layout {'/'.join(readers)}, "
            f"{len({id(table) for table in self.tables})} rotary tables, "
            f"arena {self._arena.num_bytes} bytes"
        )

    @property
    def config(self) -> ConnectorConfig:
        return self._config

    @property
    def is_started(self) -> bool:
        return self._arena is not None

    @property
    def arena(self) -> Arena:
        assert self._arena is not None, "inferscale_start was not called"
        return self._arena

    def before_forward(self, step: StepMetadata) -> None:
        if step.step_id == 0:
            return
        if len(step.zero):
            self.arena.zero(self._on_device(step.zero))
        if step.inject:
            started = time.perf_counter()
            self._inject(step.inject)
            self._inject_ms[step.step_id] = (time.perf_counter() - started) * 1e3

    def after_forward(self, step: StepMetadata) -> None:
        if step.step_id == 0:
            return
        if step.capture:
            self._capture(step.capture)

    def acknowledge(self, step: StepMetadata | None) -> StepDone | None:
        """What this rank has done, for the scheduler side. None when the step had no work."""
        if step is None or step.step_id == 0:
            return None
        inject_ms, self._inject_ms = self._inject_ms, {}
        return StepDone([step.step_id], inject_ms)

    def _inject(self, copies: Sequence[Copy]) -> None:
        rows = self.arena.read(self._joined([copy.arena_slots for copy in copies]))
        slots = self._joined([copy.cache_slots for copy in copies])
        origins = self._joined([copy.origins for copy in copies])
        positions = self._joined([copy.positions for copy in copies])
        for index, (layer, table) in enumerate(zip(self._layers, self.tables, strict=True)):
            key, value = self.arena.key_value(rows, index)
            layer.write(slots, *compose_layer(key, value, table, origins, positions))

    def _capture(self, copies: Sequence[Copy]) -> None:
        slots = self._joined([copy.cache_slots for copy in copies])
        rows = capture_rows([layer.read(slots) for layer in self._layers])
        self.arena.write(self._joined([copy.arena_slots for copy in copies]), rows)

    def _joined(self, parts: Sequence[NDArray[np.int64]]) -> Tensor:
        return self._on_device(np.concatenate(parts))

    def _on_device(self, values: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.arena.rows.device, non_blocking=True)
