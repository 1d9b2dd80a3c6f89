"""Restore from host memory against the bus: `python -m benchmarks.gpu.tiers --out FILE`.

At the shape of Llama-3.1-8B, through the worker side's mover: what is timed is from the step that
names the copies to the poll that finds them done, as a waiting request sees it. Limit: one copy of
as many bytes between the same memories in the same run. `scattered` pages lie anywhere; `as lent`
is how the page pool gives them out. Copied rows are compared before anything is timed.

busy: meanwhile the GPU multiplies matrices on the stream of the forward pass. matmul_ratio: how
much longer these take than without the copies.

`--device cpu --layers 2` runs it where there is no GPU, to try the script.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inferscale_core.kv.pages import PagePool
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.recipes import Storage
from inferscale_core.vllm_connector.metadata import MoveRows
from inferscale_core.vllm_connector.mover import HostRows, Mover, open_piece_copier

SHAPE, PAGE_TOKENS, FACT_TOKENS, NUM_CHUNKS = LayerShape(8, 128), 4, 30, 50
NUM_PAGES = 2048
REPEATS = 40
POLL_S = 20e-6
"""Lets the mover's thread run; far below the engine's own millisecond."""


@dataclass
class Setup:
    storage: Storage
    arena: Arena
    host: HostRows
    mover: Mover
    next_op: int = 0

    def move(self, pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]], to: Tier) -> float:
        """Milliseconds until every copy is known to be done. pairs: arena rows, host rows."""
        ops = []
        for arena_rows, host_rows in pairs:
            self.next_op += 1
            source = Tier.HOST if to is Tier.GPU else Tier.GPU
            rows = (host_rows, arena_rows) if to is Tier.GPU else (arena_rows, host_rows)
            ops.append(MoveRows(self.next_op, source, to, *rows))
        missing = {op.op_id for op in ops}
        started = time.perf_counter()
        self.mover.submit(list(ops))
        while missing:
            time.sleep(POLL_S)
            for op_id, result in self.mover.poll().items():
                assert result.succeeded, "a copy failed"
                missing.discard(op_id)
        return (time.perf_counter() - started) * 1e3


def setup(storage: Storage, device: torch.device, num_layers: int) -> Setup:
    layout = row_layout([SHAPE] * num_layers, torch.bfloat16, storage)
    arena = Arena(NUM_PAGES * PAGE_TOKENS, layout, device)
    host = HostRows(NUM_PAGES * PAGE_TOKENS, arena)
    return Setup(storage, arena, host, Mover(arena, host))


def chunks(pages: str, seed: int) -> list[NDArray[np.int64]]:
    """Rows of each chunk, 30 tokens in whole pages."""
    if pages == "as lent":
        pool = PagePool(NUM_PAGES, PAGE_TOKENS)
        taken = [pool.take(number, FACT_TOKENS) or () for number in range(NUM_CHUNKS)]
    else:
        numbers = random.Random(seed).sample(range(NUM_PAGES), NUM_CHUNKS * 8)
        taken = [tuple(numbers[8 * i : 8 * i + 8]) for i in range(NUM_CHUNKS)]
    offsets = np.arange(PAGE_TOKENS)
    return [
        (np.asarray(each)[:, None] * PAGE_TOKENS + offsets).reshape(-1)[:FACT_TOKENS]
        for each in taken
    ]


def check(made: Setup, pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> None:
    """Down and up again: the same bytes, and nothing else touched."""
    rows = made.arena.rows
    content = torch.randint(0, 255, (rows.shape[0], rows.stride(0) * rows.element_size()))
    rows.view(torch.uint8).copy_(content.to(torch.uint8))
    arena_rows = torch.from_numpy(np.concatenate([a for a, _ in pairs])).to(rows.device)
    host_rows = torch.from_numpy(np.concatenate([h for _, h in pairs]))
    before = rows.view(torch.uint8).clone()
    made.host.rows.zero_()
    made.move(pairs, Tier.HOST)
    down = made.host.rows.view(torch.uint8)
    assert torch.equal(down[host_rows], before[arena_rows].cpu()), "offloaded bytes differ"
    down_again = down.clone()
    down_again[host_rows] = 0
    assert not down_again.any(), "rows of the host tier that nobody named were written"
    rows.index_fill_(0, arena_rows, 0)
    made.move(pairs, Tier.GPU)
    assert torch.equal(rows.view(torch.uint8), before), "restored bytes differ"


def limit_ms(made: Setup, num_bytes: int, to: Tier) -> float:
    """One copy of so many bytes."""
    here = made.host.rows.view(torch.uint8).reshape(-1)[:num_bytes]
    there = made.arena.rows.view(torch.uint8).reshape(-1)[:num_bytes]
    source, target = (here, there) if to is Tier.GPU else (there, here)

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        synchronize(made.arena.rows)

    return median_ms(copy)


def median_ms(run: Callable[[], object]) -> float:
    samples = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        samples.append((time.perf_counter() - started) * 1e3)
    return statistics.median(samples[5:])


def synchronize(like: Tensor) -> None:
    if like.is_cuda:
        torch.cuda.synchronize()


class Busy:
    """What a forward pass does to the GPU: products of large matrices, back to back."""

    def __init__(self, device: torch.device) -> None:
        size = 4096 if device.type == "cuda" else 256
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._left = torch.randn(size, size, device=device, dtype=dtype)
        self._count = 60

    def run_ms(self) -> float:
        synchronize(self._left)
        started = time.perf_counter()
        for _ in range(self._count):
            torch.mm(self._left, self._left)
        synchronize(self._left)
        return (time.perf_counter() - started) * 1e3


def figures(made: Setup) -> Iterator[dict[str, Any]]:
    num_bytes = NUM_CHUNKS * FACT_TOKENS * made.arena.row_bytes
    for pages in ("as lent", "scattered"):
        pairs = list(zip(chunks(pages, 1), chunks(pages, 2), strict=True))
        check(made, pairs)
        for to in (Tier.GPU, Tier.HOST):
            ms = median_ms(lambda pairs=pairs, to=to: made.move(pairs, to))  # type: ignore[misc]
            limit = limit_ms(made, num_bytes, to)
            yield {
                "kind": "restore" if to is Tier.GPU else "offload",
                "storage": str(made.storage),
                "pages": pages,
                "k": NUM_CHUNKS,
                "mbytes": round(num_bytes / 1e6, 1),
                "ms": round(ms, 3),
                "limit_ms": round(limit, 3),
                "gb_per_s": round(num_bytes / ms / 1e6, 1),
                "limit_gb_per_s": round(num_bytes / limit / 1e6, 1),
            }
    yield busy_figure(made, pairs, num_bytes)


def busy_figure(made: Setup, pairs: Any, num_bytes: int) -> dict[str, Any]:
    """The copies are named before the products, so that they need not wait for them."""
    busy = Busy(made.arena.rows.device)
    alone: list[float] = []
    together: list[float] = []
    moved: list[float] = []
    for _ in range(REPEATS):
        alone.append(busy.run_ms())
        started = time.perf_counter()
        made.mover.submit(ops := named(made, pairs))
        together.append(busy.run_ms())
        missing = {op.op_id for op in ops}
        while missing:
            time.sleep(POLL_S)
            missing -= made.mover.poll().keys()
        moved.append((time.perf_counter() - started) * 1e3)
    return {
        "kind": "restore",
        "storage": str(made.storage),
        "pages": "scattered",
        "busy": True,
        "k": NUM_CHUNKS,
        "mbytes": round(num_bytes / 1e6, 1),
        "matmul_ms": round(statistics.median(alone), 3),
        "matmul_ratio": round(statistics.median(together) / statistics.median(alone), 3),
        "done_within_ms": round(statistics.median(moved), 3),
    }


def named(made: Setup, pairs: Any) -> list[Any]:
    ops = []
    for arena_rows, host_rows in pairs:
        made.next_op += 1
        ops.append(MoveRows(made.next_op, Tier.HOST, Tier.GPU, host_rows, arena_rows))
    return ops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=32)
    arguments = parser.parse_args()
    print("copies issued by", open_piece_copier())
    found = []
    for storage in (Storage.CACHE, Storage.INT4):
        made = setup(storage, torch.device(arguments.device), arguments.layers)
        for figure in figures(made):
            print(figure, flush=True)
            found.append(figure)
        made.mover.close()
        del made
    if arguments.out:
        from benchmarks.gpu.machine import gpu_rows

        arguments.out.write_text(json.dumps(gpu_rows("gpu_tiers", found)))


if __name__ == "__main__":
    main()
