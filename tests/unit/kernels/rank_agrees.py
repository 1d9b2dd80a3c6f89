"""Run as a script: the rank kernel gives the numbers that its reference gives.

A process of its own, since TRITON_INTERPRET must be set before the kernels are imported.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from inferscale_core.kernels.rank.launch import ROWS_PER_PROGRAM, Rank
from inferscale_core.kernels.rank.reference import NO_ROW, STEP, rank
from tests.unit.kernels.guarded import guarded

SIZES = (
    (1,),
    (0, 3),
    (0,),
    (ROWS_PER_PROGRAM, ROWS_PER_PROGRAM + 1, 1),
    (50, 7, 50, 120, 33),
)
"""Facts of each query's user."""


def exact_unit_vectors(count: int, dimension: int, generator: torch.Generator) -> Tensor:
    """Float32; every third row is the first again, and one is against it."""
    rows = torch.nn.functional.normalize(torch.randn(count, dimension, generator=generator), dim=-1)
    rows[::3] = rows[:1].clone()
    rows[1:2] = -rows[:1]
    return ((rows.double() / STEP).round() * STEP).float()


def main() -> None:
    device, generator, count = sys.argv[1], torch.Generator().manual_seed(0), 0
    for dimension in (8, 384, 500):
        launch = Rank(torch.device(device), max_queries=8)
        for sizes in SIZES:
            rows = [
                guarded(exact_unit_vectors(size, dimension, generator).to(device)) for size in sizes
            ]
            queries = guarded(exact_unit_vectors(len(sizes), dimension, generator).to(device))
            for query, table in zip(queries, rows, strict=True):
                table[-1:] = query  # A similarity of one, which is the largest that there is.
            for limit in (1, 20, 1000):
                found, wanted = launch(queries, rows, limit), rank(queries, rows, limit)
                assert torch.equal(found, wanted), (dimension, sizes, limit)
                for numbers, size in zip(found, sizes, strict=True):
                    assert int((numbers != NO_ROW).sum()) == min(limit, size)
                count += 1
    print(f"{count} rankings agree")


if __name__ == "__main__":
    main()
