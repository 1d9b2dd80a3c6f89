"""Methods that the engine adds to its workers, called through `collective_rpc`."""

from __future__ import annotations

from typing import Any

from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from vllm.distributed.kv_transfer import get_kv_transfer_group

from inferscale_core.ids import ModelRevision, RecipeHash
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.key_means import key_means_from_text
from inferscale_core.vllm_connector.connector import InferScaleConnector
from inferscale_core.vllm_connector.describe import describe, key_channels
from inferscale_core.vllm_connector.disk_tier import open_disk_tier
from inferscale_core.vllm_connector.key_meter import Shard
from inferscale_core.vllm_connector.worker_side import WorkerSide


class WorkerExtension:
    """Source: vLLM 0.26 and 0.32, `worker_extension_cls` (mixed into the worker class)."""

    model_runner: Any
    vllm_config: Any

    def inferscale_start(self, key_means: str = "") -> str:
        """Bind the loaded model's rotary tables and cache layouts. Once, while the engine is idle.

        key_means: `KeyMeans.to_text`, or "" for none. Raises Unsupported, by name, for what we
        cannot invert or read. Returns a line for the log.
        """
        return _worker_side().start(
            self.model_runner.get_model(),
            self.vllm_config.compilation_config.static_forward_context,
            self.vllm_config.model_config.max_model_len,
            key_means_from_text(key_means) if key_means else None,
            _shard(),
        )

    def inferscale_measure_keys(self) -> None:
        """Begin to measure what keys have in common, see `KeyMeter`."""
        _worker_side().measure_keys()

    def inferscale_key_means(self) -> dict[str, Any]:
        """What was measured, and nothing more is. `layers`: by name the rank's means and the KV
        heads of the whole model; `shares`: of each layer, see `KeyMeter.shares`."""
        found, shares = _worker_side().measured_keys(self.model_runner.get_model(), _shard())
        layers = {name: [part.means, part.num_kv_heads] for name, part in found.items()}
        return {"layers": layers, "shares": shares}

    def inferscale_open_disk(self, secret: str, model_revision: str, recipe_hash: str) -> int:
        """Take the rank's disk tier into use; returns the records found, none of them admitted.

        Once, after `inferscale_start`. secret: `StoreSecret.root` as hex digits. Raises Unavailable
        when another process has the folder.
        """
        return open_disk_tier(
            _worker_side(),
            get_tensor_model_parallel_rank(),
            StoreSecret(bytes.fromhex(secret)),
            ModelRevision(model_revision),
            RecipeHash(recipe_hash),
        )

    def inferscale_arena(self) -> dict[str, int]:
        """The pools of this rank: `num_pages`, `page_tokens`, `bytes_per_token`, and of the lower
        tiers `num_host_pages`, `num_disk_pages`."""
        side = _worker_side()
        return {
            "num_pages": side.config.num_pages,
            "page_tokens": side.config.page_tokens,
            "bytes_per_token": side.config.bytes_per_token,
            "num_host_pages": side.tiers.num_host_pages,
            "num_disk_pages": side.tiers.num_disk_pages,
        }

    def inferscale_describe(self) -> dict[str, Any]:
        """What was found in this rank, see `describe`."""
        return describe(_worker_side(), self.model_runner.get_model())

    def inferscale_key_channels(self) -> list[float]:
        """How far channels of the stored keys stand out, see `describe`."""
        return key_channels(_worker_side().arena)

    def inferscale_arena_is_zero(self) -> bool:
        """Whether no row of arena and host tier holds anything: what deletes are tested by."""
        side = _worker_side()
        hosts = [side.host.rows] if side.tiers.num_host_pages else []
        return not any(bool(rows.any()) for rows in (side.arena.rows, *hosts))


def _shard() -> Shard:
    return Shard(get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size())


def _worker_side() -> WorkerSide:
    """The side of this rank's connector. Asserts that the engine loaded ours."""
    connector = get_kv_transfer_group()
    assert isinstance(connector, InferScaleConnector)
    assert connector.worker_side is not None
    return connector.worker_side
