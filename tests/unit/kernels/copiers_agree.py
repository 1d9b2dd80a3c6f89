"""Run as a script: both copiers do the same over two KV cache groups, in every storage.

A process of its own, since TRITON_INTERPRET must be set before the kernels are imported.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from inferscale_core.kernels.paged import NULL_BLOCK
from inferscale_core.kv.cache_codes import decode, encode
from inferscale_core.kv.pieces import pieces_of
from inferscale_core.kv.quantise import unpack_part
from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena
from inferscale_core.memory.recipes import Storage
from inferscale_core.vllm_connector.copiers import Copier, FusedCopier, TorchCopier
from inferscale_core.vllm_connector.copies import Copy
from inferscale_core.vllm_connector.layout import PagedLayer

BLOCKS, BLOCK, ROWS, POSITIONS = 11, 16, 32, 64
SHAPES = (LayerShape(2, 32), LayerShape(1, 64), LayerShape(2, 32), LayerShape(2, 32))
GROUPS = (0, 1, 1, 0)
SCALES = (0.2, 0.02)
BIAS = torch.tensor(0.5)


class CacheWriter:
    """As the engine's op: skips nothing, so it must not be asked to write padding."""

    def do_kv_cache_update(
        self, layer: Any, key: Tensor, value: Tensor, cache: Tensor, slots: Tensor
    ) -> None:
        assert (slots >= 0).all()
        scales = layer.scales or (None, None)
        coded = [
            encode(part.float(), scale, cache.dtype)
            for part, scale in zip((key, value), scales, strict=True)
        ]
        cache[slots // BLOCK, :, slots % BLOCK] = torch.cat(coded, dim=-1)


def layers(dtype: torch.dtype, device: str) -> list[PagedLayer]:
    scales = SCALES if dtype == torch.uint8 else None
    attention = SimpleNamespace(impl=CacheWriter(), scales=scales, dtype=torch.float32)
    made = []
    for index, (shape, group) in enumerate(zip(SHAPES, GROUPS, strict=True)):
        size = (BLOCKS, shape.num_kv_heads, BLOCK, 2 * shape.head_dim)
        generator = torch.Generator().manual_seed(index)
        cache = encode(torch.randn(size, generator=generator), scales and scales[0], dtype)
        made.append(
            PagedLayer(
                f"layer.{index}",
                attention,
                cache.to(device),
                shape,
                BLOCK,
                group,
                "split_last",
                scales,
            )
        )
    return made


def tables(device: str) -> list[RotaryTable]:
    made = {}
    for dim, base in ((32, 1e4), (64, 1e6)):
        angles = torch.arange(float(POSITIONS))[:, None] * base ** -(torch.arange(dim // 2) / dim)
        made[dim] = RotaryTable(angles.cos().to(device), angles.sin().to(device), dim, True)
    return [made[shape.head_dim] for shape in SHAPES]


def copies(blocks: range, position: int) -> list[Copy]:
    """Two requests, whose tokens come from position 14 and begin two before the end of a block; the
    second group holds no block any more for those two."""
    assert position % BLOCK == BLOCK - 2
    made = []
    for request, count in enumerate((5, 9)):
        first, second = blocks[2 * request : 2 * request + 2]
        pieces = pieces_of(range(10 * request, 10 * request + count), 1, count, 14)
        block_ids = ([first, second], [NULL_BLOCK, first])
        made.append(Copy("", position, count, pieces, block_ids, BLOCK))
    return made


def moved(make: Any, storage: Storage, dtype: torch.dtype, device: str) -> tuple[Arena, list[Any]]:
    """The arena after a capture, and the caches after injecting it somewhere else."""
    arena = Arena(ROWS, row_layout(SHAPES, dtype, storage), torch.device(device))
    paged = layers(dtype, device)
    biases = [BIAS.expand(s.num_kv_heads, s.head_dim).to(device) for s in SHAPES]
    copier: Copier = make(arena, paged, tables(device), biases)
    copier.capture(copies(range(1, 5), 14))
    copier.inject(copies(range(5, 9), 46))
    return arena, paged


def main() -> None:
    device, count = sys.argv[1], 0
    for storage in Storage:
        for dtype in (torch.float32, torch.uint8):
            (arena, fused), (plain_arena, plain) = (
                moved(make, storage, dtype, device) for make in (FusedCopier, TorchCopier)
            )
            for index, (ours, theirs) in enumerate(zip(fused, plain, strict=True)):
                seen, wanted = (
                    decode(layer.cache, layer.scales and layer.scales[0])
                    for layer in (ours, theirs)
                )
                # A code apart where sums of floats fall otherwise: the coarsest of all is int4's.
                step = 0.5 if storage is Storage.INT4 else 0.15
                far = (seen - wanted).abs() > step * wanted.abs().amax(-1, keepdim=True)
                assert not far.any(), (storage, dtype, index)
                differs = (seen - wanted).abs() > 1e-4 * wanted.abs().amax()
                assert float(differs.float().mean()) < 0.01, (storage, dtype, index)
                assert torch.equal(seen[9:], wanted[9:]), "a block of nobody's"
            if storage is Storage.CACHE:
                assert torch.equal(arena.rows, plain_arena.rows)
            else:
                bias = BIAS.expand(SHAPES[0].num_kv_heads, SHAPES[0].head_dim).to(device)
                part, other = (
                    a.read_part(torch.arange(5).to(device), 0) for a in (arena, plain_arena)
                )
                pairs = zip(
                    unpack_part(storage, SHAPES[0], part, bias),
                    unpack_part(storage, SHAPES[0], other, bias),
                    strict=True,
                )
                assert all(float((a - b).abs().max()) < 0.5 for a, b in pairs)
            count += 1
    print(f"{count} pairs agree")


if __name__ == "__main__":
    main()
