"""Ranks open their own parts of one disk tier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inferscale_core.ids import ModelRevision, RecipeHash
from inferscale_core.kv.disk_store import DiskStore
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.disk_tier import open_disk_tier
from inferscale_core.vllm_connector.tier_config import TierConfig
from tests.unit.kv.disk_factories import MIRA, SECRET, a_disk_key, a_key, put

CONFIG = ConnectorConfig(
    layer_names=("layer",),
    layers=(LayerShape(2, 16),),
    group_of_layer=(0,),
    windows=(None,),
    dtype=torch.bfloat16,
    block_size=16,
    page_tokens=4,
    num_pages=8,
    event_endpoint=None,
)


@dataclass
class Side:
    """What a rank's worker side says of itself, and the store that it was given."""

    config: ConnectorConfig
    tiers: TierConfig
    store: DiskStore | None = None

    def use_disk(self, store: Any, unseal: Any) -> None:
        sealed = SECRET.seal(MIRA, a_disk_key())
        assert unseal(MIRA, sealed) == a_disk_key()
        self.store = store


def open_rank(
    folder: Path, rank: int, *, config: ConnectorConfig = CONFIG, recipe: str = "r1"
) -> tuple[DiskStore, int]:
    """The store and the number of records that it found."""
    side: Any = Side(config, TierConfig(disk_dir=folder, disk_bytes=1 << 20, num_ranks=2))
    revision, recipe_hash = ModelRevision("org/model@1"), RecipeHash(recipe)
    found = open_disk_tier(side, rank, SECRET, revision, recipe_hash)
    assert side.store is not None
    return side.store, found


def test_ranks_have_records_of_their_own(tmp_path: Path) -> None:
    stores = [open_rank(tmp_path, rank)[0] for rank in (0, 1)]
    for store, names in zip(stores, ("A", "AB"), strict=True):
        store.admit(MIRA, a_disk_key(), [])
        put(store, *(a_key(name) for name in names))
        store.close()
    assert [open_rank(tmp_path, rank)[1] for rank in (0, 1)] == [1, 2]


@pytest.mark.parametrize(
    "change",
    [{"dtype": torch.float32}, {"layers": (LayerShape(1, 32),)}, {"layers": CONFIG.layers * 2}],
    ids=["dtype", "heads", "layers"],
)
def test_records_whose_rows_mean_something_else_are_not_found(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    store, _ = open_rank(tmp_path, 0)
    store.admit(MIRA, a_disk_key(), [])
    put(store, a_key("A"))
    store.close()
    assert open_rank(tmp_path, 0, config=replace(CONFIG, **change))[1] == 0


def test_what_another_recipe_left_is_removed_by_the_first_rank(tmp_path: Path) -> None:
    for rank in (0, 1):
        open_rank(tmp_path, rank, recipe="r0")[0].close()
    open_rank(tmp_path, 1)
    assert len(list(tmp_path.glob("*/r0/*/about"))) == 2
    open_rank(tmp_path, 0)
    assert list(tmp_path.glob("*/r0")) == []
    assert len(list(tmp_path.glob("*/r1/*/about"))) == 2
