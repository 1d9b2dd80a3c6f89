"""Layouts are found by what they hold, not by their shape."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from inferscale_core.errors import Unsupported
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.layout import open_layer

BLOCKS, BLOCK, DIM = 4, 8, 16


def writer_split_last(cache: Tensor, key: Tensor, value: Tensor, slots: Tensor) -> None:
    for i, slot in enumerate(slots.tolist()):
        cache[slot // BLOCK, :, slot % BLOCK, :DIM] = key[i]
        cache[slot // BLOCK, :, slot % BLOCK, DIM:] = value[i]


def writer_pair_first(cache: Tensor, key: Tensor, value: Tensor, slots: Tensor) -> None:
    for i, slot in enumerate(slots.tolist()):
        cache[0, slot // BLOCK, slot % BLOCK] = key[i]
        cache[1, slot // BLOCK, slot % BLOCK] = value[i]


def writer_pair_second(cache: Tensor, key: Tensor, value: Tensor, slots: Tensor) -> None:
    for i, slot in enumerate(slots.tolist()):
        cache[slot // BLOCK, 0, slot % BLOCK] = key[i]
        cache[slot // BLOCK, 1, slot % BLOCK] = value[i]


def writer_swapped(cache: Tensor, key: Tensor, value: Tensor, slots: Tensor) -> None:
    writer_split_last(cache, value, key, slots)


def nhd(num_heads: int) -> Tensor:
    """Logical (blocks, heads, tokens, 2 x dim), tokens before heads in memory."""
    return torch.zeros(BLOCKS, BLOCK, num_heads, 2 * DIM).permute(0, 2, 1, 3)


def hnd(num_heads: int) -> Tensor:
    return torch.zeros(BLOCKS, num_heads, BLOCK, 2 * DIM)


def attention(write: Callable[[Tensor, Tensor, Tensor, Tensor], None]) -> SimpleNamespace:
    class Impl:
        def do_kv_cache_update(
            self, layer: object, key: Tensor, value: Tensor, cache: Tensor, slots: Tensor
        ) -> None:
            write(cache, key, value, slots)

    return SimpleNamespace(impl=Impl())


CASES = {
    "split-nhd": (nhd, writer_split_last, "split_last"),
    "split-hnd": (hnd, writer_split_last, "split_last"),
    "pair-first": (
        lambda heads: torch.zeros(2, BLOCKS, BLOCK, heads, DIM),
        writer_pair_first,
        "pair_first",
    ),
    "pair-second": (
        lambda heads: torch.zeros(BLOCKS, 2, BLOCK, heads, DIM),
        writer_pair_second,
        "pair_second",
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_each_layout_is_found_also_with_two_heads(
    case: str, num_heads: int, dtype: torch.dtype
) -> None:
    make, write, reader = CASES[case]
    cache = make(num_heads).to(dtype)
    layer = open_layer("layer", attention(write), cache, LayerShape(num_heads, DIM), BLOCK)
    assert layer.reader == reader
    assert not cache.any(), "the probe leaves nothing"
    slots = torch.tensor([9, 31, 8, 22])
    key, value = (torch.randn(4, num_heads, DIM).to(dtype) for _ in range(2))
    layer.write(slots, key, value)
    read_key, read_value = layer.read(slots)
    assert torch.equal(read_key, key)
    assert torch.equal(read_value, value)


def test_a_layout_nobody_reads_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"layer model\.layers\.0.*Impl.*\[4, 2, 8, 32\]"):
        open_layer("model.layers.0", attention(writer_swapped), hnd(2), LayerShape(2, DIM), BLOCK)
