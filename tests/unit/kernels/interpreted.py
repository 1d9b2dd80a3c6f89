"""Run as a script: the fused kernels against their references, in Triton's interpreter or on a GPU.

A process of its own, since TRITON_INTERPRET must be set before the kernels are imported.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch

from inferscale_core.kernels.capture.launch import capture
from inferscale_core.kernels.capture.reference import capture_rows
from inferscale_core.kernels.compose.launch import compose
from inferscale_core.kernels.compose.reference import compose_layer
from inferscale_core.kernels.paged import Strides, group_layers
from inferscale_core.kv.rope import RotaryTable, shift
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena

BLOCKS, BLOCK = 5, 16
Layout = Callable[[int, int, torch.dtype, str], tuple[torch.Tensor, Strides]]


def nhd(heads: int, dim: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, Strides]:
    cache = torch.empty(BLOCKS, BLOCK, heads, 2 * dim, dtype=dtype, device=device)
    view = cache.permute(0, 2, 1, 3)
    return view, Strides(*view.stride(), dim)


def hnd(heads: int, dim: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, Strides]:
    view = torch.empty(BLOCKS, heads, BLOCK, 2 * dim, dtype=dtype, device=device)
    return view, Strides(*view.stride(), dim)


def pair_first(
    heads: int, dim: int, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, Strides]:
    cache = torch.empty(2, BLOCKS, BLOCK, heads, dim, dtype=dtype, device=device)
    pair, block, token, head, last = cache.stride()
    return cache, Strides(block, head, token, last, pair)


def read(cache: torch.Tensor, slots: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    blocks, offsets = slots // BLOCK, slots % BLOCK
    if cache.dim() == 5:
        return cache[0, blocks, offsets], cache[1, blocks, offsets]
    both = cache[blocks, :, offsets]
    return both[..., :dim], both[..., dim:]


def table(rotary_dim: int, is_neox: bool, device: str, magnitude: float) -> RotaryTable:
    powers = torch.arange(rotary_dim // 2) * 2 / rotary_dim
    angles = torch.arange(128.0)[:, None] * 10_000**-powers
    return RotaryTable(
        (angles.cos() * magnitude).to(device),
        (angles.sin() * magnitude).to(device),
        rotary_dim,
        is_neox,
    )


def check(
    layout: Layout,
    shape: LayerShape,
    rotary_dim: int,
    is_neox: bool,
    dtype: torch.dtype,
    num_tokens: int,
    num_layers: int,
    device: str,
) -> None:
    torch.manual_seed(num_tokens)
    made = [layout(shape.num_kv_heads, shape.head_dim, dtype, device) for _ in range(num_layers)]
    caches, strides = zip(*made, strict=True)
    for cache in caches:
        cache.fill_(float("nan"))
    tables = [table(rotary_dim, is_neox, device, 1.2)] * num_layers
    if num_layers > 2:
        tables = [*tables[:-1], table(rotary_dim, is_neox, device, 1.0)]
    shapes = [shape] * num_layers
    arena = Arena(64, row_layout(shapes, dtype), torch.device(device))
    arena.rows.normal_()
    offsets = [index * shape.row_elements for index in range(num_layers)]
    groups = group_layers(caches, strides, shapes, tables, offsets, BLOCK)
    assert len(groups) == 1
    arena_slots = torch.randperm(64)[:num_tokens].to(device)
    cache_slots = torch.randperm(BLOCKS * BLOCK)[:num_tokens].to(device)
    origins = torch.randint(0, 128, (num_tokens,)).to(device)
    places = torch.randint(0, 128, (num_tokens,)).to(device)
    places[0] = origins[0]
    copies = torch.stack([arena_slots, cache_slots, origins, places])
    padding = torch.tensor([[0], [-1], [0], [0]], device=device)
    compose(arena.rows, groups, torch.cat([padding, copies, padding], dim=1).contiguous())

    tolerance = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-7}[dtype]
    untouched = torch.ones(BLOCKS * BLOCK, dtype=torch.bool, device=device)
    untouched[cache_slots] = False
    every = torch.arange(BLOCKS * BLOCK, device=device)
    for index, cache in enumerate(caches):
        key, value = arena.read_layer(arena_slots, index)
        wanted, same = compose_layer(key, value, shift(tables[index], origins, places))
        seen_key, seen_value = read(cache, cache_slots, shape.head_dim)
        torch.testing.assert_close(seen_key, wanted, rtol=tolerance, atol=tolerance)
        assert torch.equal(seen_key[0], key[0]), "a token that stays is copied bitwise"
        assert torch.equal(seen_value, same)
        for part in read(cache, every[untouched], shape.head_dim):
            assert part.isnan().all(), "an untouched slot was written"

    before = arena.rows.clone()
    target = torch.randperm(64)[:num_tokens].to(device)
    padded = torch.cat([padding[:2], torch.stack([target, cache_slots])], dim=1).contiguous()
    capture(arena.rows, groups, padded)
    pairs = [read(cache, cache_slots, shape.head_dim) for cache in caches]
    before[target] = capture_rows(pairs)
    assert torch.equal(arena.rows, before)


def main() -> None:
    device = sys.argv[1]
    shapes = (LayerShape(1, 64), LayerShape(2, 32), LayerShape(3, 80), LayerShape(4, 128))
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    count = 0
    for layout, shape, is_neox in itertools.product((nhd, hnd, pair_first), shapes, (True, False)):
        rotary_dim = shape.head_dim // (1, 2, 4)[count % 3]
        dtype = dtypes[(count // 3) % 3]
        num_tokens, num_layers = ((1, 1), (7, 3), (19, 6))[(count // 2) % 3]
        check(layout, shape, rotary_dim, is_neox, dtype, num_tokens, num_layers, device)
        count += 1
    print(f"{count} cases agree")


if __name__ == "__main__":
    main()
