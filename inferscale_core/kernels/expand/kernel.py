"""Expand in one launch, of as many programs as are launched: each takes PIECES pieces of one
request at a time.

It counts the tokens of the request's pieces before its own: a request has one or a few for each of
its chunks. Behind the last piece of a request that is shorter than others none is read.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def expand_kernel(
    packed_ptr,
    copies_ptr,
    NUM_GROUPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    NULL_BLOCK: tl.constexpr,
    PAD_SLOT: tl.constexpr,
    FIRST_LINE: tl.constexpr,
    FIRST_CACHE_LINE: tl.constexpr,
    HEADER_FIELDS: tl.constexpr,
    PIECE_FIELDS: tl.constexpr,
    REQUEST_FIELDS: tl.constexpr,
    PIECES: tl.constexpr,
    COUNTED: tl.constexpr,
    PIECE_TOKENS: tl.constexpr,
):
    """packed: int32, see `packed`. copies: int64, see `paged.as_list`."""
    num_pieces = tl.load(packed_ptr)
    num_requests = tl.load(packed_ptr + 1)
    num_blocks = tl.load(packed_ptr + 2)
    num_tokens = tl.load(packed_ptr + 3)
    max_pieces = tl.load(packed_ptr + 4)
    if tl.program_id(0) == 0:
        tl.store(copies_ptr, num_tokens.to(tl.int64))
    pieces = packed_ptr + HEADER_FIELDS
    requests = pieces + PIECE_FIELDS * num_pieces
    block_ids = requests + REQUEST_FIELDS * num_requests
    per_request = (max_pieces + PIECES - 1) // PIECES
    for part in range(tl.program_id(0), num_requests * per_request, tl.num_programs(0)):
        request = requests + REQUEST_FIELDS * (part // per_request)
        first = tl.load(request)
        count = tl.load(request + 1)
        first_token = tl.load(request + 2)
        first_position = tl.load(request + 3)
        block = tl.load(request + 4)

        own = (part % per_request) * PIECES
        counts = pieces + PIECE_FIELDS * first + 1
        before = tl.zeros([COUNTED], dtype=tl.int32)
        num_before = tl.where(own < count, own, 0)
        for start in range(0, num_before, COUNTED):
            earlier = start + tl.arange(0, COUNTED)
            before += tl.load(counts + PIECE_FIELDS * earlier, mask=earlier < num_before, other=0)
        piece = own + tl.arange(0, PIECES)[:, None]  # [PIECES, 1]
        is_piece = piece < count
        fields = pieces + PIECE_FIELDS * (first + piece)
        row = tl.load(fields, mask=is_piece, other=0).to(tl.int64)
        num_of_piece = tl.load(fields + 1, mask=is_piece, other=0)
        origin = tl.load(fields + 2, mask=is_piece, other=0).to(tl.int64)
        offset = tl.sum(before) + tl.cumsum(num_of_piece, axis=0) - num_of_piece

        within = tl.arange(0, PIECE_TOKENS)[None, :]  # [1, PIECE_TOKENS]
        token = first_token + offset + within  # [PIECES, PIECE_TOKENS]
        mask = is_piece & (within < num_of_piece) & (token < num_tokens)
        position = first_position + offset + within
        out = copies_ptr + FIRST_LINE + token
        stride = tl.cast(num_tokens, tl.int64)
        tl.store(out, row + within, mask=mask)
        tl.store(out + stride, origin + within, mask=mask)
        tl.store(out + 2 * stride, position.to(tl.int64), mask=mask)
        for group in tl.static_range(NUM_GROUPS):
            place = group * num_blocks + block + position // BLOCK_SIZE
            found = tl.load(block_ids + place, mask=mask, other=NULL_BLOCK).to(tl.int64)
            slot = found * BLOCK_SIZE + position % BLOCK_SIZE
            slot = tl.where(found == NULL_BLOCK, PAD_SLOT, slot)
            tl.store(out + (FIRST_CACHE_LINE + group) * stride, slot, mask=mask)
