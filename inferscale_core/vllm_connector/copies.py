"""What a step copies between arena and cache, request by request, and all of it as one vector.

Host work grows with the chunks of a request, not with its tokens: those are told apart on the
device (`kernels.expand`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import attrgetter

import msgspec
import numpy as np
from numpy.typing import NDArray

from inferscale_core.kernels.expand.packed import PackedShape
from inferscale_core.kernels.expand.reference import expand_lines
from inferscale_core.kernels.paged import FIRST_CACHE_LINE
from inferscale_core.kv.pieces import PIECE_BYTES

_pieces = attrgetter("pieces")


class Copy(msgspec.Struct, frozen=True, gc=False):
    """Consecutive prompt tokens to copy between arena rows and the engine's slots, for one request.

    position: of the first. pieces: [num_pieces, 3], int32, as bytes, see `kv.pieces`: the tokens'
    arena rows and origins, an origin being where a token was when its key was computed. block_ids:
    for each KV cache group those of the prompt's blocks from `position // block_size` on, to the
    last token's.

    The properties are int64 arrays of its tokens, made anew by each call.
    """

    handle: str
    position: int
    num_tokens: int
    pieces: bytes
    block_ids: tuple[list[int], ...]
    block_size: int

    @property
    def num_pieces(self) -> int:
        return len(self.pieces) // PIECE_BYTES

    @property
    def arena_slots(self) -> NDArray[np.int64]:
        return self._line(0)

    @property
    def origins(self) -> NDArray[np.int64]:
        return self._line(1)

    @property
    def positions(self) -> NDArray[np.int64]:
        return self._line(2)

    @property
    def cache_slots(self) -> NDArray[np.int64]:
        """[num_groups, num_tokens]; PAD_SLOT where the group holds no block any more."""
        slots: NDArray[np.int64] = lines_of([self])[FIRST_CACHE_LINE:]
        return slots

    def _line(self, index: int) -> NDArray[np.int64]:
        line: NDArray[np.int64] = lines_of([self])[index]
        return line


def lines_of(copies: Sequence[Copy]) -> NDArray[np.int64]:
    """[3 + num_groups, num_tokens], int64, of all copies: see `kernels.expand.reference`."""
    packed, shape = pack(copies)
    return expand_lines(np.frombuffer(packed, dtype=np.int32), shape, copies[0].block_size)


def pack(copies: Sequence[Copy]) -> tuple[bytes, PackedShape]:
    """The copies as `kernels.expand.packed` says.

    Without numpy: between two of an engine's steps its code has left the processor's caches, and a
    few calls of it cost more than all that is done here.
    """
    num_groups = len(copies[0].block_ids)
    requests, block_ids = array("i"), array("i")
    num_pieces = num_blocks = num_tokens = max_pieces = 0
    for copy in copies:
        count = copy.num_pieces
        block = num_blocks - copy.position // copy.block_size
        requests.extend((num_pieces, count, num_tokens, copy.position, block))
        num_pieces += count
        num_blocks += len(copy.block_ids[0])
        num_tokens += copy.num_tokens
        max_pieces = max(max_pieces, count)
    for group in range(num_groups):
        for copy in copies:
            block_ids.extend(copy.block_ids[group])
    assert len(block_ids) == num_groups * num_blocks, "groups with other numbers of blocks"
    shape = PackedShape(num_pieces, len(copies), num_groups, num_blocks, num_tokens, max_pieces)
    header = array("i", (num_pieces, len(copies), num_blocks, num_tokens, max_pieces))
    return b"".join((header, *map(_pieces, copies), requests, block_ids)), shape
