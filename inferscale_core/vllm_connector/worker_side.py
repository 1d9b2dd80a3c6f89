"""The half of the connector that runs in every rank: copies what the step's metadata names.

It decides nothing. Before the forward pass it zeroes freed rows and injects; after it, it captures.
What moves between tiers is begun with a step and goes on beside it (`mover`).
Per-layer hooks are not used: the engine skips them when it replays a full CUDA graph.
"""

from __future__ import annotations

import time

from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kv.disk import ChunkStore
from inferscale_core.kv.key_means import KeyMeans, RankMeans
from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.rows import LayerShape
from inferscale_core.kv.storage import Arena
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.copiers import Copier, open_copier
from inferscale_core.vllm_connector.key_bias import find_key_biases
from inferscale_core.vllm_connector.key_meter import (
    ONE_RANK,
    KeyMeter,
    Shard,
    means_of_rank,
    rank_means,
)
from inferscale_core.vllm_connector.layout import PagedLayer, open_layer, permit_tiles
from inferscale_core.vllm_connector.metadata import StepDone, StepMetadata
from inferscale_core.vllm_connector.mover import HostRows, Mover, Unseal
from inferscale_core.vllm_connector.rotary import find_tables
from inferscale_core.vllm_connector.staging import RowSender, open_row_sender
from inferscale_core.vllm_connector.tier_config import TierConfig


class WorkerSide:
    """States: built, registered (has the engine's caches), started (has the rotary tables).

    Only a started one may copy. Called by the rank's own thread.
    """

    def __init__(self, config: ConnectorConfig, tiers: TierConfig) -> None:
        self._config = config
        self.tiers = tiers
        self._caches: dict[str, Tensor] = {}
        self.tables: list[RotaryTable] = []
        self.readers: list[str] = []
        self._layers: list[PagedLayer] = []
        self._meter: KeyMeter | None = None
        self._arena: Arena | None = None
        self._copier: Copier | None = None
        self._send_rows: RowSender | None = None
        self._host: HostRows | None = None
        self._mover: Mover | None = None
        self._inject_ms: dict[int, float] = {}

    def register(self, caches: dict[str, Tensor]) -> None:
        missing = set(self._config.layer_names) - caches.keys()
        if missing:
            raise Unsupported(f"the engine gave no cache for layer {min(missing)}")
        self._caches = caches

    def start(
        self,
        model: nn.Module,
        attention_by_name: dict[str, nn.Module],
        max_len: int,
        key_means: KeyMeans | None = None,
        shard: Shard = ONE_RANK,
    ) -> str:
        """Find layouts and rotary tables; allocate the arena. Returns a line for the log.

        key_means: taken from keys before they are quantised, in place of their bias. Raises
        Unsupported by name. Call once, while the engine is idle.
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
        permit_tiles(layers)
        self.tables = [tables[name] for name in config.layer_names]
        self._arena = Arena(config.num_rows, config.row_layout, first.device)
        self._layers = layers
        biases = self._key_biases(model, key_means, shard)
        self._copier = open_copier(self._arena, layers, self.tables, biases)
        self._send_rows = open_row_sender(first.device)
        host_bytes = self._start_tiers()
        self.readers = sorted({layer.reader for layer in layers})
        return (
            f"{len(layers)} layers in {len(config.windows)} cache groups, "
            f"layout {'/'.join(self.readers)}, "
            f"{len({id(table) for table in self.tables})} rotary tables, "
            f"arena {self._arena.num_bytes} bytes of {config.storage} storage, "
            f"{sum(bias is not None for bias in biases)} key "
            f"{'biases' if key_means is None else 'means'}, host tier {host_bytes} bytes, "
            f"{type(self._copier).__name__}"
        )

    def use_disk(self, store: ChunkStore, unseal: Unseal) -> None:
        """The rank's disk tier from now on. Call once, after `start`, when there is to be one."""
        assert self._mover is not None, "a disk tier was configured, and inferscale_start called"
        self._mover.use_disk(store, unseal)

    def measure_keys(self) -> None:
        """Take the keys of all that is captured from now on into account."""
        self._meter = KeyMeter(self._layers, self.tables)

    def measured_keys(
        self, model: nn.Module, shard: Shard
    ) -> tuple[dict[str, RankMeans], list[float]]:
        """What keys have in common since `measure_keys`, and how much of them that is, see
        `KeyMeter.shares`; empty when nothing was captured. Ends the measuring."""
        assert self._meter is not None, "measure_keys was called"
        meter, self._meter = self._meter, None
        found = rank_means(meter, model, self._shapes, shard)
        return found, meter.shares() if found else []

    def close(self) -> None:
        """The last call: ends what goes on beside the steps."""
        if self._mover is not None:
            self._mover.close()
            self._mover = None

    @property
    def config(self) -> ConnectorConfig:
        return self._config

    @property
    def arena(self) -> Arena:
        assert self._arena is not None, "inferscale_start was not called"
        return self._arena

    @property
    def host(self) -> HostRows:
        assert self._host is not None, "there is no host tier"
        return self._host

    @property
    def _started_copier(self) -> Copier:
        assert self._copier is not None, "inferscale_start was not called"
        return self._copier

    def before_forward(self, step: StepMetadata) -> None:
        if len(step.zero):
            assert self._send_rows is not None, "inferscale_start was not called"
            self.arena.zero(self._send_rows(step.zero))
        if step.inject:
            started = time.perf_counter()
            self._started_copier.inject(step.inject)
            self._inject_ms[step.step_id] = (time.perf_counter() - started) * 1e3
        if step.tier_ops:
            assert self._mover is not None, "the scheduler side has tiers that this rank lacks"
            self._mover.submit(step.tier_ops)

    def after_forward(self, step: StepMetadata) -> None:
        if step.step_id == 0:
            return
        if step.capture:
            self._started_copier.capture(step.capture)
            if self._meter is not None:
                self._meter.add(step.capture)

    def acknowledge(self, step: StepMetadata | None) -> StepDone | None:
        """What this rank has done, for the scheduler side. None when there is nothing to say."""
        results = self._mover.poll() if self._mover is not None else {}
        step_ids = [step.step_id] if step is not None and step.step_id else []
        if not step_ids and not results:
            return None
        inject_ms, self._inject_ms = self._inject_ms, {}
        return StepDone(step_ids, inject_ms, {op_id: [one] for op_id, one in results.items()})

    @property
    def _shapes(self) -> dict[str, LayerShape]:
        return dict(zip(self._config.layer_names, self._config.layers, strict=True))

    def _key_biases(
        self, model: nn.Module, key_means: KeyMeans | None, shard: Shard
    ) -> list[Tensor | None]:
        """What each layer's keys have in common; not looked for where they are stored as they
        are."""
        config = self._config
        if not config.row_layout.is_quantised:
            return [None] * len(config.layer_names)
        if key_means is not None:
            device = self.arena.rows.device
            return [*means_of_rank(key_means, self._shapes, shard, device)]
        found = find_key_biases(model, self._shapes)
        return [found[name] for name in config.layer_names]

    def _start_tiers(self) -> int:
        """Bytes of the host tier."""
        tiers = self.tiers
        if tiers.num_host_pages:
            num_rows = tiers.num_host_pages * self._config.page_tokens
            self._host = HostRows(num_rows, self.arena)
        if tiers.num_host_pages or tiers.num_disk_pages:
            self._mover = Mover(self.arena, self._host)
        return self._host.num_bytes if self._host is not None else 0
