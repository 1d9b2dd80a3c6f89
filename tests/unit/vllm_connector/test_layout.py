"""Layouts are found by what they hold, not by their shape."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from inferscale_core.errors import Unsupported
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.layout import open_layer, permit_tiles

BLOCKS, BLOCK, DIM = 4, 32, 48


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


def writer_cpu_tiles(cache: Tensor, key: Tensor, value: Tensor, slots: Tensor) -> None:
    """Where vLLM's own op was seen to put every number of a block, on a CPU with AMX."""
    token, dim = (slots % BLOCK).view(-1, 1), torch.arange(DIM)
    key_at = token // 16 * 16 * DIM + dim // 2 * 32 + token % 16 * 2 + dim % 2
    value_at = dim // 16 * 16 * BLOCK + token // 2 * 32 + dim % 16 * 2 + token % 2
    raw = cache.view(BLOCKS, -1, 2, BLOCK * DIM)
    for i, slot in enumerate(slots.tolist()):
        raw[slot // BLOCK, :, 0, key_at[i]] = key[i]
        raw[slot // BLOCK, :, 1, value_at[i]] = value[i]


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
    "cpu-tiles": (hnd, writer_cpu_tiles, "cpu_tiles"),
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
    slots = torch.tensor([41, 127, 32, 70])
    key, value = (torch.randn(4, num_heads, DIM).to(dtype) for _ in range(2))
    layer.write(slots, key, value)
    read_key, read_value = layer.read(slots)
    assert torch.equal(read_key, key)
    assert torch.equal(read_value, value)


def test_a_layout_nobody_reads_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"layer model\.layers\.0.*Impl.*\[4, 2, 32, 96\]"):
        open_layer("model.layers.0", attention(writer_swapped), hnd(2), LayerShape(2, DIM), BLOCK)


@pytest.mark.parametrize(("case", "asked"), [("cpu-tiles", 1), ("split-hnd", 0)])
def test_tiles_are_asked_for_where_attention_works_with_them(
    case: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, write, _ = CASES[case]
    layer = open_layer("layer", attention(write), make(2), LayerShape(2, DIM), BLOCK)
    calls: list[None] = []
    monkeypatch.setattr("torch.cpu._init_amx", lambda: calls.append(None) or True)
    permit_tiles([layer, layer])
    assert len(calls) == asked


def test_tiles_that_are_not_permitted_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = open_layer("layer", attention(writer_cpu_tiles), hnd(2), LayerShape(2, DIM), BLOCK)
    monkeypatch.setattr("torch.cpu._init_amx", lambda: False)
    with pytest.raises(Unsupported, match=r"AMX.*engine\.dtype"):
        permit_tiles([layer])
