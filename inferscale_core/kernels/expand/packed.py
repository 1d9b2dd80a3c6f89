"""The copies of a step as they go to the device: one vector of int32, many times shorter than the
lines of their tokens, which are made of it there.

    header     [5]                       num_pieces, num_requests, num_blocks, num_tokens,
                                         max_pieces
    pieces     [num_pieces, 3]           first arena row, number of tokens, origin of the first
    requests   [num_requests, 5]         first piece, number of pieces, token, position, block
    block ids  [num_groups, num_blocks]  of all requests, one behind the other

Pieces as of `kv.pieces`. token: the place of the request's first token among all; position: the
same token's in its prompt. block: added to the number of a token's block in its prompt it gives the
place of the block's id.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from inferscale_core.kernels.paged import FIRST_CACHE_LINE, FIRST_LINE
from inferscale_core.kv.pieces import PIECE_FIELDS

HEADER_FIELDS = 5
REQUEST_FIELDS = 5

Ints = NDArray[np.int32]


class PackedShape(msgspec.Struct, frozen=True, gc=False):
    """max_pieces: of the request that has most."""

    num_pieces: int
    num_requests: int
    num_groups: int
    num_blocks: int
    num_tokens: int
    max_pieces: int

    @property
    def length(self) -> int:
        return (
            HEADER_FIELDS
            + PIECE_FIELDS * self.num_pieces
            + REQUEST_FIELDS * self.num_requests
            + self.num_groups * self.num_blocks
        )

    @property
    def num_lines(self) -> int:
        return FIRST_CACHE_LINE + self.num_groups

    @property
    def num_numbers(self) -> int:
        """Of the list of copies that is made of it, see `paged.as_list`."""
        return FIRST_LINE + self.num_lines * self.num_tokens

    def parts(self, packed: Ints) -> tuple[Ints, Ints, Ints]:
        """Views of pieces, requests and block ids, each with its shape."""
        first_request = HEADER_FIELDS + PIECE_FIELDS * self.num_pieces
        first_block = first_request + REQUEST_FIELDS * self.num_requests
        return (
            packed[HEADER_FIELDS:first_request].reshape(-1, PIECE_FIELDS),
            packed[first_request:first_block].reshape(-1, REQUEST_FIELDS),
            packed[first_block : self.length].reshape(self.num_groups, -1),
        )
