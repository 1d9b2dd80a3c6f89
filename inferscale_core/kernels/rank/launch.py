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

    Called by one thread at a time. The device reads the list of tables where the host wrote it: of
    calls with up to `max_queries` queries together none writes where another of them did, and
    before more come, the device has to have done what those asked for.
    """

    def __init__(self, device: torch.device, max_queries: int) -> None:
        is_cuda = device.type == "cuda"
        # Twice as many, since calls do not go round the end.
        self._tables = torch.zeros(2 * max_queries, 2, dtype=torch.int64, pin_memory=is_cuda)
        self._next = 0

    def __call__(self, queries: Tensor, rows: Sequence[Tensor], limit: int) -> Tensor:
        """As `reference.rank`; waits for nothing. Rows may go when it has returned, where memory is
        used again in order of the same stream."""
        width = max(map(len, rows))
        assert width <= MAX_RANKED_ROWS
        numbers = torch.empty(len(rows), width, dtype=torch.int64, device=queries.device)
        if width:
            self._launch(self._listed(rows), queries.contiguous(), numbers)
        return torch.topk(numbers, min(limit, width)).values

    def _listed(self, rows: Sequence[Tensor]) -> Tensor:
        """[len(rows), 2], int64: address and number of each one's rows."""
        if self._next + len(rows) > len(self._tables):
            self._next = 0
        listed = self._tables[self._next : self._next + len(rows)]
        self._next += len(rows)
        numbers = listed.numpy()
        for place, table in enumerate(rows):
            assert table.is_contiguous()
            numbers[place] = table.data_ptr(), len(table)
        return listed

    def _launch(self, tables: Tensor, queries: Tensor, numbers: Tensor) -> None:
        num_queries, width = numbers.shape
        # Triton launches on the current device.
        with torch.cuda.device_of(queries):  # type: ignore[no-untyped-call]
            rank_kernel[(num_queries, triton.cdiv(width, ROWS_PER_PROGRAM))](
                tables,
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
