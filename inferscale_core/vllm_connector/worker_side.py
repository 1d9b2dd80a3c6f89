"""The half of the connector that runs in every rank: copies what the step's metadata names.

It decides nothing. Before the forward pass it zeroes freed rows and injects; after it, it captures.
Per-layer hooks are not used: the engine skips them when it replays a full CUDA graph.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.copiers import Copier, open_copier
from inferscale_core.vllm_connector.layout import open_layer
from inferscale_core.vllm_connector.metadata import StepDone, StepMetadata
from inferscale_core.vllm_connector.rotary import find_tables


class WorkerSide:
    """States: built, registered (has the engine's caches), started (has the rotary tables).

    Only a started one may copy. Called by the rank's own thread.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._caches: dict[str, Tensor] = {}
        self.tables: list[RotaryTable] = []
        self._arena: Arena | None = None
        self._copier: Copier | None = None
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
        layers = [
            open_layer(
                name, attention_by_name[name], self._caches[name], shape, config.block_size, group
            )
            for name, shape, group in zip(
                config.layer_names, config.layers, config.group_of_layer, strict=True
            )
        ]
        self.tables = [tables[name] for name in config.layer_names]
        self._arena = Arena(config.num_rows, config.row_layout, first.device)
        self._copier = open_copier(self._arena, layers, self.tables)
        readers = sorted({layer.reader for layer in layers})
        return (
            f"{len(layers)} layers in {len(config.windows)} cache groups, "
            f"layout {'/'.join(readers)}, "
            f"{len({id(table) for table in self.tables})} rotary tables, "
            f"arena {self._arena.num_bytes} bytes, {type(self._copier).__name__}"
        )

    @property
    def config(self) -> ConnectorConfig:
        return self._config

    @property
    def arena(self) -> Arena:
        assert self._arena is not None, "inferscale_start was not called"
        return self._arena

    @property
    def _started_copier(self) -> Copier:
        assert self._copier is not None, "inferscale_start was not called"
        return self._copier

    def before_forward(self, step: StepMetadata) -> None:
        if step.step_id == 0:
            return
        if len(step.zero):
            self.arena.zero(self._on_device(step.zero))
        if step.inject:
            started = time.perf_counter()
            self._started_copier.inject(step.inject)
            self._inject_ms[step.step_id] = (time.perf_counter() - started) * 1e3

    def after_forward(self, step: StepMetadata) -> None:
        if step.step_id == 0:
            return
        if step.capture:
            self._started_copier.capture(step.capture)

    def acknowledge(self, step: StepMetadata | None) -> StepDone | None:
        """What this rank has done, for the scheduler side. None when the step had no work."""
        if step is None or step.step_id == 0:
            return None
        inject_ms, self._inject_ms = self._inject_ms, {}
        return StepDone([step.step_id], inject_ms)

    def _on_device(self, values: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.arena.rows.device)
