"""Expand in one launch: a program takes PIECES pieces of one request.

It counts the tokens of the request's pieces before its own: a request has one or a few for each of
its chunks. Programs behind the last piece of a request that is shorter than others read none.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_pieces", "num_requests", "num_blocks", "num_tokens"])
def expand_kernel(
    packed_ptr,
    lines_ptr,
    num_pieces,
    num_requests,
    num_blocks,
    num_tokens,
    NUM_GROUPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    NULL_BLOCK: tl.constexpr,
    PAD_SLOT: tl.constexpr,
    FIRST_CACHE_LINE: tl.constexpr,
    PIECE_FIELDS: tl.constexpr,
    REQUEST_FIELDS: tl.constexpr,
    PIECES: tl.constexpr,
    COUNTED: tl.constexpr,
    PIECE_TOKENS: tl.constexpr,
):
    """packed: int32, see `packed`. lines: [FIRST_CACHE_LINE + NUM_GROUPS, num_tokens], int64."""
    requests = packed_ptr + PIECE_FIELDS * num_pieces
    request = requests + REQUEST_FIELDS * tl.program_id(0)
    block_ids = requests + REQUEST_FIELDS * num_requests
    first = tl.load(request)
    count = tl.load(request + 1)
    first_token = tl.load(request + 2)
    first_position = tl.load(request + 3)
    block = tl.load(request + 4)

    own = tl.program_id(1) * PIECES
    counts = packed_ptr + PIECE_FIELDS * first + 1
    before = tl.zeros([COUNTED], dtype=tl.int32)
    num_before = tl.where(own < count, own, 0)
    for start in range(0, num_before, COUNTED):
        earlier = start + tl.arange(0, COUNTED)
        before += tl.load(counts + PIECE_FIELDS * earlier, mask=earlier < num_before, other=0)
    piece = own + tl.arange(0, PIECES)[:, None]  # [PIECES, 1]
    is_piece = piece < count
    fields = packed_ptr + PIECE_FIELDS * (first + piece)
    row = tl.load(fields, mask=is_piece, other=0).to(tl.int64)
    num_of_piece = tl.load(fields + 1, mask=is_piece, other=0)
    origin = tl.load(fields + 2, mask=is_piece, other=0).to(tl.int64)
    offset = tl.sum(before) + tl.cumsum(num_of_piece, axis=0) - num_of_piece

    within = tl.arange(0, PIECE_TOKENS)[None, :]  # [1, PIECE_TOKENS]
    token = first_token + offset + within  # [PIECES, PIECE_TOKENS]
    mask = is_piece & (within < num_of_piece) & (token < num_tokens)
    position = first_position + offset + within
    out = lines_ptr + token
    stride = tl.cast(num_tokens, tl.int64)
    tl.store(out, row + within, mask=mask)
    tl.store(out + stride, origin + within, mask=mask)
    tl.store(out + 2 * stride, position.to(tl.int64), mask=mask)
    for group in tl.static_range(NUM_GROUPS):
        place = group * num_blocks + block + position // BLOCK_SIZE
        found = tl.load(block_ids + place, mask=mask, other=NULL_BLOCK).to(tl.int64)
        slot = tl.where(found == NULL_BLOCK, PAD_SLOT, found * BLOCK_SIZE + position % BLOCK_SIZE)
        tl.store(out + (FIRST_CACHE_LINE + group) * stride, slot, mask=mask)
