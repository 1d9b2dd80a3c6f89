"""Compose and capture against the byte floor: `python -m benchmarks.gpu.kernels --out FILE`.

For every storage, at the shape of Llama-3.1-8B. Floor: every byte of the tokens' rows and slots is
read or written once, at the rate at which this card copies a large tensor in the same run. What the
kernels give is compared with the references before anything is timed. host_ms: what a step's
injection costs the rank's thread.

`--tune` times other launches instead, and writes nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from benchmarks.gpu.machine import gpu_rows
from inferscale_core.kernels.capture import launch as capture_launch
from inferscale_core.kernels.capture.reference import capture_quantised, capture_rows
from inferscale_core.kernels.compose import launch as compose_launch
from inferscale_core.kernels.compose.reference import compose_layer, compose_quantised
from inferscale_core.kernels.launching import CacheLaunch
from inferscale_core.kernels.paged import (
    FIRST_CACHE_LINE,
    KernelLayer,
    Strides,
    as_list,
    group_layers,
)
from inferscale_core.kv.pieces import pieces_of
from inferscale_core.kv.quantise import unpack_part
from inferscale_core.kv.rope import RotaryTable, rotation, shift, unrotation
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena
from inferscale_core.memory.recipes import Storage
from inferscale_core.vllm_connector import launches
from inferscale_core.vllm_connector.copiers import FusedCopier
from inferscale_core.vllm_connector.copies import Copy
from inferscale_core.vllm_connector.launches import FEW, FEW_TOKENS, Programs
from inferscale_core.vllm_connector.layout import PagedLayer

LAYERS, SHAPE, BLOCK, BLOCKS, ROWS = 32, LayerShape(8, 128), 16, 4096, 65536
SIZES = (30, 150, 300, 600, 1500, 3900, 15000)
REQUEST_TOKENS = 1500
"""A request over 50 facts."""

FACT_TOKENS, PAGE_TOKENS = 30, 4

LAST_CHUNK = 900
"""Origins repeat after so many tokens, so that most tokens move."""


@dataclass(frozen=True)
class Setup:
    """origins, places: lines of the copies for capture and for compose. The keys have a bias, which
    costs time: the slower case is measured."""

    storage: Storage
    arena: Arena
    layers: list[KernelLayer]
    capture: CacheLaunch
    compose: CacheLaunch
    origins: Tensor
    places: Tensor


def setup(storage: Storage, num_tokens: int) -> Setup:
    device = torch.device("cuda")
    torch.manual_seed(0)
    powers = torch.arange(SHAPE.head_dim // 2, device=device) * 2 / SHAPE.head_dim
    angles = torch.arange(16384.0, device=device)[:, None] * 500_000**-powers
    table = RotaryTable(angles.cos(), angles.sin(), SHAPE.head_dim, True)
    layers = []
    for index in range(LAYERS):
        cache = torch.randn(
            BLOCKS, BLOCK, SHAPE.num_kv_heads, 2 * SHAPE.head_dim, device=device
        ).to(torch.bfloat16)
        view = cache.permute(0, 2, 1, 3)
        block, head, token, dim = view.stride()
        strides = Strides(block, head, token, dim, SHAPE.head_dim)
        bias = torch.randn(SHAPE.num_kv_heads, SHAPE.head_dim, device=device).to(torch.bfloat16)
        layers.append(KernelLayer(index, view, strides, table, bias))
    layout = row_layout([SHAPE] * LAYERS, torch.bfloat16, storage)
    groups = group_layers(layers, layout, BLOCK)
    arena = Arena(ROWS, layout, device)
    pages = torch.randperm(ROWS // PAGE_TOKENS, device=device)[: -(-num_tokens // PAGE_TOKENS)]
    within = torch.arange(PAGE_TOKENS, device=device)
    slots = (pages[:, None] * PAGE_TOKENS + within).reshape(-1)[:num_tokens]
    places = torch.arange(num_tokens, device=device)
    block_ids = torch.randperm(BLOCKS, device=device)[: 2 * -(-num_tokens // BLOCK)]
    here, there = (ids[places // BLOCK] * BLOCK + places % BLOCK for ids in block_ids.chunk(2))
    origins = places % LAST_CHUNK
    return Setup(
        storage,
        arena,
        layers,
        capture_launch.prepare_capture(arena.rows, groups, FIRST_CACHE_LINE),
        compose_launch.prepare_compose(arena.rows, groups, FIRST_CACHE_LINE),
        torch.stack([slots, origins, origins, here]).contiguous(),
        torch.stack([slots, origins, places, there]).contiguous(),
    )


def programs_for(num_tokens: int) -> Programs:
    """What the service launches for so many."""
    return FEW if num_tokens <= FEW_TOKENS else launches.MANY


def replay_of(launch: CacheLaunch, lines: Tensor, programs: Programs) -> Callable[[], None]:
    """As the service launches it, in a graph."""
    copies = as_list(lines)
    launch(copies, programs.tokens)  # Compiled by this.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(copies, programs.tokens)
    return partial(_replay, graph, copies)


def _replay(graph: torch.cuda.CUDAGraph, _kept: Tensor) -> None:
    graph.replay()


def check(made: Setup) -> None:
    """Of the first, a middle and the last layer, all tokens."""
    num_programs = programs_for(made.places.shape[1]).tokens
    made.capture(as_list(made.origins), num_programs)
    made.compose(as_list(made.places), num_programs)
    slots, origins, _, here = made.origins
    _, _, places, there = made.places
    for layer in (made.layers[0], made.layers[LAYERS // 2], made.layers[-1]):
        key, value = at(layer, here)
        part = made.arena.read_part(slots, layer.index)
        seen = at(layer, there)
        if made.storage is Storage.CACHE:
            assert torch.equal(part, capture_rows([(key, value)]))
            wanted = compose_layer(key, value, shift(layer.table, origins, places))
        else:
            back = unrotation(layer.table, origins)
            expected = capture_quantised(made.storage, key, value, back, layer.bias)
            for ours, theirs in zip(
                unpack_part(made.storage, SHAPE, part, layer.bias),
                unpack_part(made.storage, SHAPE, expected, layer.bias),
                strict=True,
            ):
                differs = (ours - theirs).abs() > 1e-3 * theirs.abs() + 1e-3
                assert float(differs.float().mean()) < 0.01, "too many codes differ"
            turn = rotation(layer.table, places)
            wanted = compose_quantised(made.storage, SHAPE, part, turn, layer.bias, torch.bfloat16)
        for ours, theirs in zip(seen, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=2**-7)


def at(layer: KernelLayer, slots: Tensor) -> tuple[Tensor, Tensor]:
    both = layer.cache[slots // BLOCK, :, slots % BLOCK]
    return both[..., : SHAPE.head_dim], both[..., SHAPE.head_dim :]


def time_ms(run: Callable[[], object]) -> float:
    return float(triton.testing.do_bench(run, warmup=50, rep=200, return_mode="median"))


def host_ms(made: Setup) -> float:
    """What one step's injection costs the rank's thread, from the scheduler's lists to the launch:
    the median of 200, of an idle device."""
    paged = [
        PagedLayer(str(layer.index), None, layer.cache, SHAPE, BLOCK, 0, "split_last")
        for layer in made.layers
    ]
    tables, biases = ([getattr(x, name) for x in made.layers] for name in ("table", "bias"))
    copier = FusedCopier(made.arena, paged, tables, biases)
    per_request = range(0, made.places.shape[1], REQUEST_TOKENS)
    copies = [
        request_copy(min(REQUEST_TOKENS, made.places.shape[1] - first)) for first in per_request
    ]
    samples = []
    for _ in range(200):
        torch.cuda.synchronize()
        started = time.perf_counter()
        copier.inject(copies)
        samples.append((time.perf_counter() - started) * 1e3)
    return statistics.median(samples)


def request_copy(num_tokens: int) -> Copy:
    """A request over facts that lie here and there in the arena."""
    pieces, done = b"", 0
    while done < num_tokens:
        count = min(FACT_TOKENS, num_tokens - done)
        first = random.randrange(ROWS // PAGE_TOKENS - count)
        pages = tuple(range(first, first + -(-count // PAGE_TOKENS)))
        pieces += pieces_of(pages, PAGE_TOKENS, count, done % LAST_CHUNK)
        done += count
    blocks = random.sample(range(1, BLOCKS), -(-num_tokens // BLOCK))
    return Copy("", 0, num_tokens, pieces, (blocks,), BLOCK)


def copy_rate() -> float:
    """Bytes read and written per second by a copy of 2 GiB, in TB/s."""
    large = torch.empty(1 << 30, dtype=torch.bfloat16, device="cuda")
    other = torch.empty_like(large)
    return 2 * large.numel() * 2 / time_ms(lambda: other.copy_(large)) / 1e9


def measure(made: Setup, rate: float) -> dict[str, float | str]:
    num_tokens = made.places.shape[1]
    num_bytes = num_tokens * (made.arena.row_bytes + LAYERS * SHAPE.row_elements * 2)
    programs = programs_for(num_tokens)
    return {
        "num_tokens": num_tokens,
        "storage": str(made.storage),
        "layers_per_program": compose_launch.LAYERS_PER_PROGRAM,
        "num_warps": compose_launch.NUM_WARPS,
        "programs": programs.tokens,
        "compose_ms": time_ms(replay_of(made.compose, made.places, programs)),
        "capture_ms": time_ms(replay_of(made.capture, made.origins, programs)),
        "host_ms": host_ms(made),
        "floor_ms": num_bytes / rate / 1e9,
        "copy_tb_per_s": rate,
    }


def each_launch(is_tuning: bool) -> Iterator[None]:
    """Once with what the service launches with, or once with each of other launches."""
    if not is_tuning:
        yield
        return
    for per_program, num_warps, tokens in itertools.product((2, 4, 8), (2, 4), (512, 1024, 2048)):
        launch: Any
        for launch in (compose_launch, capture_launch):
            launch.LAYERS_PER_PROGRAM, launch.NUM_WARPS = per_program, num_warps
        launches.MANY = Programs(launches.MANY.expand, tokens)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--storages", type=Storage, nargs="+", default=list(Storage))
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    if (arguments.out is None) != arguments.tune:
        parser.error("either --out or --tune")
    rate = copy_rate()
    torch.cuda.empty_cache()
    rows = []
    for storage, num_tokens in itertools.product(arguments.storages, arguments.sizes):
        for _ in each_launch(arguments.tune):
            made = setup(storage, num_tokens)
            check(made)
            rows.append(measure(made, rate))
            print(rows[-1], flush=True)
            del made
            torch.cuda.empty_cache()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(gpu_rows("gpu_kernels", rows), indent=1))


if __name__ == "__main__":
    main()
