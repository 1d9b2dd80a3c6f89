"""Compose and capture against the byte floor: `python -m benchmarks.gpu.kernels --out FILE`.

Floor: every byte of the tokens' KV is read once and written once, at the rate at which this card
copies a large tensor in the same run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
import triton

from benchmarks.gpu.machine import gpu_rows
from inferscale_core.kernels.capture.launch import capture
from inferscale_core.kernels.compose import launch
from inferscale_core.kernels.paged import PagedGroup, Strides, group_layers
from inferscale_core.kv.rope import RotaryTable
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena

LAYERS, SHAPE, BLOCK = 32, LayerShape(8, 128), 16


def setup(num_tokens: int) -> tuple[Arena, list[PagedGroup], torch.Tensor]:
    device = torch.device("cuda")
    blocks = 4096
    caches, strides = [], []
    for _ in range(LAYERS):
        cache = torch.empty(blocks, BLOCK, 8, 256, dtype=torch.bfloat16, device=device)
        caches.append(cache.permute(0, 2, 1, 3))
        block, head, token, dim = caches[-1].stride()
        strides.append(Strides(block, head, token, dim, 128))
    angles = torch.arange(8192.0, device=device)[:, None] * 10_000 ** -(
        torch.arange(64, device=device) * 2 / 128
    )
    table = RotaryTable(angles.cos().contiguous(), angles.sin().contiguous(), 128, True)
    arena = Arena(65536, row_layout([SHAPE] * LAYERS, torch.bfloat16), device)
    groups = group_layers(
        caches, strides, [SHAPE] * LAYERS, [table] * LAYERS, arena.layout.offsets, BLOCK
    )
    pages = torch.randperm(65536 // 4, device=device)[: -(-num_tokens // 4)]
    slots = (pages[:, None] * 4 + torch.arange(4, device=device)).reshape(-1)[:num_tokens]
    block_ids = torch.randperm(blocks, device=device)[: -(-num_tokens // BLOCK)]
    places = torch.arange(num_tokens, device=device)
    cache_slots = block_ids[places // BLOCK] * BLOCK + places % BLOCK
    origins = places % 900
    copies = torch.stack([slots, origins, places, cache_slots]).contiguous()
    return arena, groups, copies


def time_ms(run: Callable[[], object]) -> float:
    return float(triton.testing.do_bench(run, warmup=50, rep=200, return_mode="median"))


def copy_rate() -> float:
    """Bytes read and written per second by a copy of 2 GiB, in TB/s."""
    large = torch.empty(1 << 30, dtype=torch.bfloat16, device="cuda")
    other = torch.empty_like(large)
    return 2 * large.numel() * 2 / time_ms(lambda: other.copy_(large)) / 1e9


def measure(num_tokens: int, rate: float) -> list[dict[str, float]]:
    arena, groups, copies = setup(num_tokens)
    rows: list[dict[str, float]] = []
    for per_program in (1, 2, 4, 8):
        launch.LAYERS_PER_PROGRAM = per_program
        rows.append(
            {
                "num_tokens": num_tokens,
                "layers_per_program": per_program,
                "compose_ms": time_ms(lambda: launch.compose(arena.rows, groups, copies)),
                "capture_ms": time_ms(lambda: capture(arena.rows, groups, copies)),
                "floor_ms": 2 * num_tokens * LAYERS * SHAPE.row_elements * 2 / rate / 1e9,
                "copy_tb_per_s": rate,
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rate = copy_rate()
    torch.cuda.empty_cache()
    rows = []
    for num_tokens in (30, 150, 300, 600, 1500, 3900, 15000):
        rows += measure(num_tokens, rate)
        torch.cuda.empty_cache()
    arguments.out.write_text(json.dumps(gpu_rows("gpu_kernels", rows), indent=1))


if __name__ == "__main__":
    main()
