"""What keys have in common, measured from the engine's own cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kv.cache_codes import encode
from inferscale_core.kv.key_means import key_means_of_ranks
from inferscale_core.kv.rope import RotaryTable, apply, rotation
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.key_meter import (
    ONE_RANK,
    KeyMeter,
    Shard,
    means_of_rank,
    rank_means,
)
from inferscale_core.vllm_connector.layout import PagedLayer
from inferscale_core.vllm_connector.metadata import PAD_SLOT, Copy

BLOCKS, BLOCK, POSITIONS = 6, 16, 128
SHAPES = {"first": LayerShape(2, 32), "second": LayerShape(1, 64)}
GROUPS = {"first": 0, "second": 1}
SCALES = (0.5, 0.5)


class Bench:
    """Two layers in two KV cache groups, whose keys are kept apart from their positions."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.dtype = dtype
        self.scales = SCALES if dtype == torch.uint8 else None
        self.layers = [self._layer(name, shape) for name, shape in SHAPES.items()]
        self.tables = [table(shape.head_dim) for shape in SHAPES.values()]
        self.meter = KeyMeter(self.layers, self.tables)
        self.common = [
            torch.randn(shape.num_kv_heads, shape.head_dim) * 5 for shape in SHAPES.values()
        ]
        self.seen: list[list[Tensor]] = [[], []]

    def _layer(self, name: str, shape: LayerShape) -> PagedLayer:
        size = (BLOCKS, shape.num_kv_heads, BLOCK, 2 * shape.head_dim)
        cache = torch.zeros(size, dtype=self.dtype)
        attention: Any = SimpleNamespace()
        return PagedLayer(
            name, attention, cache, shape, BLOCK, GROUPS[name], "split_last", self.scales
        )

    def capture(self, block: int, first: int, count: int, num_given_up: int = 0) -> Copy:
        """Puts keys where the engine would; num_given_up: without a slot in the second group."""
        tokens = np.arange(count, dtype=np.int64)
        slots = block * BLOCK + tokens
        given_up = np.where(tokens < num_given_up, PAD_SLOT, slots)
        lines = np.stack([tokens, tokens, first + tokens, slots, given_up])
        for index, layer in enumerate(self.layers):
            shape = layer.shape
            key = self.common[index] + torch.randn(count, shape.num_kv_heads, shape.head_dim)
            skipped = num_given_up if layer.group == 1 else 0
            if first:
                self.seen[index].append(key[skipped:])
            positions = torch.from_numpy(first + tokens)
            rotated = apply(rotation(self.tables[index], positions), key)
            coded = encode(rotated, self.scales and self.scales[0], self.dtype)
            at = torch.from_numpy(slots)
            layer.cache[at // BLOCK, :, at % BLOCK, : shape.head_dim] = coded
        return Copy("", lines)


def table(dim: int) -> RotaryTable:
    angles = torch.arange(float(POSITIONS))[:, None] * 1e4 ** -(torch.arange(dim // 2) * 2 / dim)
    return RotaryTable(angles.cos() * 1.2, angles.sin() * 1.2, dim, True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_means_are_of_keys_without_position(dtype: torch.dtype) -> None:
    bench = Bench(dtype)
    bench.meter.add([bench.capture(1, 7, 9), bench.capture(2, 90, 16)])
    bench.meter.add([bench.capture(3, 40, 5)])
    tolerance = 1e-4 if dtype == torch.float32 else 0.5
    for seen, mean in zip(bench.seen, bench.meter.means(), strict=True):
        torch.testing.assert_close(mean.float(), torch.cat(seen).mean(0), rtol=0, atol=tolerance)
    assert all(0.9 < share < 1 for share in bench.meter.shares())


def test_what_begins_a_prompt_and_what_a_window_gave_up_are_left_out() -> None:
    bench = Bench()
    bench.meter.add([bench.capture(1, 0, 16), bench.capture(2, 30, 12, num_given_up=4)])
    assert bench.meter.num_keys == 8
    for seen, mean in zip(bench.seen, bench.meter.means(), strict=True):
        torch.testing.assert_close(mean.float(), torch.cat(seen).mean(0), rtol=0, atol=1e-4)
    bench.meter.add([bench.capture(3, 0, 16)])
    assert bench.meter.num_keys == 8


class Attention(nn.Module):
    def __init__(self, layer_name: str, total: int | None) -> None:
        super().__init__()
        self.total_num_kv_heads = total
        self.attn = nn.Identity()
        self.attn.layer_name = layer_name  # type: ignore[assignment]
        self.attn.impl = object()  # type: ignore[assignment]


def model(total: int | None) -> nn.Module:
    return nn.ModuleList(Attention(name, total) for name in SHAPES)


def test_two_ranks_put_the_means_of_a_model_together_and_take_their_own() -> None:
    benches = [Bench(), Bench()]
    for bench in benches:
        bench.capture(1, 5, 16)
    benches[1].capture(2, 5, 16)
    shapes = {"first": SHAPES["first"]}
    ranks = [
        rank_means(first_layer(bench), model(4), shapes, Shard(rank, 2))
        for rank, bench in enumerate(benches)
    ]
    whole = key_means_of_ranks(ranks)
    assert whole.by_layer["first"].shape == (4, 32)
    for rank, bench in enumerate(benches):
        (own,) = means_of_rank(whole, shapes, Shard(rank, 2), torch.device("cpu"))
        wanted = torch.cat(bench.seen[0]).mean(0)
        torch.testing.assert_close(own, wanted, rtol=2e-3, atol=2e-3)


def first_layer(bench: Bench) -> KeyMeter:
    """A meter of the first layer alone, over all that was captured."""
    meter = KeyMeter(bench.layers[:1], bench.tables[:1])
    for block, keys in enumerate(bench.seen[0], start=1):
        tokens = np.arange(len(keys), dtype=np.int64)
        lines = np.stack([tokens, tokens, 5 + tokens, block * BLOCK + tokens])
        meter.add([Copy("", lines)])
    return meter


def test_nothing_captured_means_nothing_measured() -> None:
    assert rank_means(Bench().meter, model(3), SHAPES, ONE_RANK) == {}


def test_ranks_that_cannot_tell_their_heads_are_refused_by_name() -> None:
    bench = Bench()
    bench.meter.add([bench.capture(1, 5, 16)])
    with pytest.raises(Unsupported, match=r"layer first: Attention names no total_num_kv_heads"):
        rank_means(bench.meter, model(None), SHAPES, Shard(0, 2))


def test_means_of_another_model_are_refused_by_name() -> None:
    bench = Bench()
    bench.meter.add([bench.capture(1, 5, 16)])
    whole = key_means_of_ranks([rank_means(bench.meter, model(None), SHAPES, ONE_RANK)])
    device = torch.device("cpu")
    assert len(means_of_rank(whole, SHAPES, ONE_RANK, device)) == 2
    with pytest.raises(Unsupported, match=r"layer first: it has 3 heads of 32, .* 2 heads of 32"):
        means_of_rank(whole, {"first": LayerShape(3, 32)}, ONE_RANK, device)
    with pytest.raises(Unsupported, match=r"layer third: .* there are none"):
        means_of_rank(whole, {"third": LayerShape(2, 32)}, ONE_RANK, device)
