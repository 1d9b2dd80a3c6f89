"""Launches the rank kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from inferscale_core.kernels.rank.kernel import rank_kernel
from inferscale_core.kernels.rank.reference import MAX_RANKED_ROWS, NO_ROW, STEP

ROWS_PER_PROGRAM, COLUMNS_AT_ONCE, NUM_WARPS = 16, 128, 4


class Rank:
    """`reference.rank` for tables anywhere on a device, launched again and again.

    Called by one thread at a time, and not before the device has done what the last call asked for:
    it reads the list of tables where the host wrote it.
    """

    def __init__(self, device: torch.device, max_queries: int) -> None:
        is_cuda = device.type == "cuda"
        self._tables = torch.zeros(max_queries, 2, dtype=torch.int64, pin_memory=is_cuda)

    def __call__(self, queries: Tensor, rows: Sequence[Tensor], limit: int) -> Tensor:
        """As `reference.rank`; waits for nothing. The rows are to live until it is done."""
        width = max(map(len, rows))
        assert width <= MAX_RANKED_ROWS
        numbers = torch.empty(len(rows), width, dtype=torch.int64, device=queries.device)
        if width:
            tables = self._tables.numpy()
            for place, table in enumerate(rows):
                assert table.is_contiguous()
                tables[place] = table.data_ptr(), len(table)
            self._launch(queries.contiguous(), numbers)
        return torch.topk(numbers, min(limit, width)).values

    def _launch(self, queries: Tensor, numbers: Tensor) -> None:
        num_queries, width = numbers.shape
        rank_kernel[(num_queries, triton.cdiv(width, ROWS_PER_PROGRAM))](
            self._tables,
            queries,
            numbers,
            width,
            DIMENSION=queries.shape[1],
            SCALE=MAX_RANKED_ROWS / STEP**2,
            LAST_ROW=MAX_RANKED_ROWS - 1,
            NO_ROW=NO_ROW,
            ROWS=ROWS_PER_PROGRAM,
            COLUMNS=COLUMNS_AT_ONCE,
            num_warps=NUM_WARPS,
        )
