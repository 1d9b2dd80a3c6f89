"""What keys have in common, measured from the engine's own cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kernels.paged import NULL_BLOCK
from inferscale_core.kv.cache_codes import encode
from inferscale_core.kv.key_means import key_means_of_ranks
from inferscale_core.kv.rope import RotaryTable, apply, rotation
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.copies import Copy
from inferscale_core.vllm_connector.key_meter import (
    ONE_RANK,
    KeyMeter,
    Shard,
    means_of_rank,
    rank_means,
)
from inferscale_core.vllm_connector.layout import PagedLayer

BLOCKS, BLOCK, POSITIONS = 8, 16, 128
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
        self.copies: list[Copy] = []

    def _layer(self, name: str, shape: LayerShape) -> PagedLayer:
        size = (BLOCKS, shape.num_kv_heads, BLOCK, 2 * shape.head_dim)
        cache = torch.zeros(size, dtype=self.dtype)
        attention: Any = SimpleNamespace()
        return PagedLayer(
            name, attention, cache, shape, BLOCK, GROUPS[name], "split_last", self.scales
        )

    def capture(self, block: int, first: int, count: int, *, gives_up: bool = False) -> Copy:
        """Puts keys where the engine would; gives_up: the second group holds no first block."""
        begin = BLOCK - first % BLOCK  # Of its tokens so many are in the first block.
        own = [2 * block, 2 * block + 1] if count > begin else [2 * block]
        other = [NULL_BLOCK, *own[1:]] if gives_up else own
        piece = np.array([0, count, first], dtype=np.int32).tobytes()
        copy = Copy("", first, count, piece, (own, other), BLOCK)
        at = torch.from_numpy(copy.cache_slots[0])
        for index, layer in enumerate(self.layers):
            shape = layer.shape
            key = self.common[index] + torch.randn(count, shape.num_kv_heads, shape.head_dim)
            if first:
                self.seen[index].append(key[begin:] if gives_up and layer.group == 1 else key)
            positions = torch.from_numpy(copy.positions)
            rotated = apply(rotation(self.tables[index], positions), key)
            coded = encode(rotated, self.scales and self.scales[0], self.dtype)
            layer.cache[at // BLOCK, :, at % BLOCK, : shape.head_dim] = coded
        self.copies.append(copy)
        return copy


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
    bench.meter.add([bench.capture(1, 0, 16), bench.capture(2, 28, 12, gives_up=True)])
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
    meter.add(bench.copies)
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
