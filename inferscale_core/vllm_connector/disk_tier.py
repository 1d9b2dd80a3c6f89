"""A rank's disk tier, opened for what the engine's rows are."""

from __future__ import annotations

from inferscale_core.ids import ModelRevision, RecipeHash
from inferscale_core.kv.disk_folder import rank_folder, remove_other_stores
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.disk_store import open_disk_store
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.worker_side import WorkerSide


def open_disk_tier(
    side: WorkerSide,
    rank: int,
    secret: StoreSecret,
    model_revision: ModelRevision,
    recipe_hash: RecipeHash,
) -> int:
    """Returns the number of records found. Stores of other models and recipes in the same
    `disk_dir` are removed: they can never be read again and are counted by nobody."""
    tiers = side.tiers
    assert tiers.disk_dir is not None, "a disk tier was configured"
    folder = rank_folder(tiers.disk_dir, model_revision, recipe_hash, rank, tiers.num_ranks)
    store = open_disk_store(folder, secret, max_bytes=tiers.disk_bytes, layout=_layout(side.config))
    if rank == 0:
        remove_other_stores(tiers.disk_dir, folder)
    side.use_disk(store, secret.unseal)
    return store.num_records


def _layout(config: ConnectorConfig) -> str:
    """What the bytes of a row mean, beside what the folder's name says."""
    shapes = ", ".join(f"{layer.num_kv_heads}x{layer.head_dim}" for layer in config.layers)
    return f"{config.storage} of {config.dtype}: {shapes}"
