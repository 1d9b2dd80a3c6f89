"""Rank, but for the choice of the greatest: one program takes ROWS rows of one query's table.

Each query has rows of its own, anywhere on the device; their addresses come in a list.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["width"])  # No compiling while serving.
def rank_kernel(
    tables_ptr,
    queries_ptr,
    numbers_ptr,
    width,
    DIMENSION: tl.constexpr,
    SCALE: tl.constexpr,
    LAST_ROW: tl.constexpr,
    NO_ROW: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """tables: [num_queries, 2], int64: address and number of a query's rows, float32, contiguous.
    queries: [num_queries, DIMENSION], float32. numbers: [num_queries, width], int64, is written."""
    query = tl.program_id(0).to(tl.int64)
    table = tl.load(tables_ptr + 2 * query).to(tl.pointer_type(tl.float32))
    num_rows = tl.load(tables_ptr + 2 * query + 1)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    is_row = row < num_rows
    score = tl.zeros([ROWS], dtype=tl.float64)
    for start in range(0, DIMENSION, COLUMNS):
        column = start + tl.arange(0, COLUMNS)  # [COLUMNS]
        is_column = column < DIMENSION
        own = tl.load(queries_ptr + query * DIMENSION + column, mask=is_column, other=0.0)
        place = row[:, None].to(tl.int64) * DIMENSION + column[None, :]
        mask = is_row[:, None] & is_column[None, :]
        values = tl.load(table + place, mask=mask, other=0.0)
        score += tl.sum(values.to(tl.float64) * own[None, :].to(tl.float64), axis=1)
    number = (score * SCALE).to(tl.int64) + (LAST_ROW - row)
    number = tl.where(is_row, number, NO_ROW)
    tl.store(numbers_ptr + query * width + row, number, mask=row < width)
