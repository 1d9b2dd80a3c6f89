"""The engine's block tables of requests that are captured, and copies of prompt tokens.

Source: vLLM 0.26 and 0.32, v1/core/sched/output.py (NewRequestData, CachedRequestData): block ids
of a request are not consecutive; those of a running request arrive as additions, those of a
resumed one as a replacement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from inferscale_core.kv.pieces import PIECE_FIELDS
from inferscale_core.kv.tiers import Place
from inferscale_core.vllm_connector.copies import Copy

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput


_pieces = attrgetter("pieces")

BlockIds = tuple[list[int], ...]
"""For each KV cache group the ids of a request's blocks, in order."""


class BlockTables:
    """Blocks of the followed requests, and how far the coming step computes every request."""

    def __init__(self) -> None:
        self._blocks: dict[str, BlockIds | None] = {}
        self._reached: dict[str, int] = {}
        self._computed: dict[str, int] = {}
        self.admitted: dict[str, int] = {}

    def follow(self, request_id: str) -> None:
        self._blocks[request_id] = None

    def drop(self, request_id: str) -> None:
        self._blocks.pop(request_id, None)
        self._computed.pop(request_id, None)

    def block_ids(self, request_id: str) -> BlockIds:
        blocks = self._blocks[request_id]
        assert blocks is not None, "a scheduled request has blocks"
        return blocks

    def advance(self, output: SchedulerOutput) -> None:
        """Take in one step. `admitted` then names the requests that start or resume in it, with
        the tokens they need not compute: native hits and injected ones together."""
        self._reached = {}
        self.admitted = {}
        for new in output.scheduled_new_reqs:
            self.admitted[new.req_id] = new.num_computed_tokens
            self._reach(output, new.req_id, new.num_computed_tokens)
            if new.req_id in self._blocks:
                self._blocks[new.req_id] = tuple(map(list, new.block_ids))
        cached = output.scheduled_cached_reqs
        if not (self._blocks or cached.resumed_req_ids):
            return  # Most steps: everybody goes on, and nobody is followed.
        for request_id, added, num_computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            is_resumed = request_id in cached.resumed_req_ids
            if is_resumed:
                self.admitted[request_id] = num_computed
            self._reach(output, request_id, num_computed)
            self._extend(request_id, added, is_resumed)

    def scheduled_to_reach(self, ends: Mapping[str, int]) -> Iterator[str]:
        """Requests of `ends` whose first `ends[id]` tokens are computed once the step has run."""
        for request_id, end in ends.items():
            if self._reached.get(request_id, -1) >= end:
                yield request_id

    def computed_before(self, request_id: str) -> int:
        """Tokens of a followed request that were computed before the coming step."""
        return self._computed[request_id]

    def _reach(self, output: SchedulerOutput, request_id: str, num_computed: int) -> None:
        if request_id in self._blocks:
            self._computed[request_id] = num_computed
            self._reached[request_id] = num_computed + output.num_scheduled_tokens[request_id]

    def _extend(self, request_id: str, added: BlockIds | None, is_resumed: bool) -> None:
        if request_id not in self._blocks or added is None:
            return
        known = self._blocks[request_id]
        if is_resumed or known is None:
            self._blocks[request_id] = tuple(map(list, added))
        else:
            pairs = zip(known, added, strict=True)
            self._blocks[request_id] = tuple(old + list(new) for old, new in pairs)


def token_copy(
    handle: str,
    places: Sequence[Place],
    block_ids: BlockIds,
    block_size: int,
    positions: range,
    *,
    first: int = 0,
) -> Copy:
    """The copy of prompt tokens `positions`; `places`, in the arena, hold those from `first` on and
    none behind the last.

    Raises RuntimeError for places that hold more or fewer: a kernel would write to any slot for
    them, and nobody looks after this.
    """
    pieces = b"".join(map(_pieces, places))
    if positions.start > first:
        pieces = _without(pieces, positions.start - first)
    num_held = sum(memoryview(pieces).cast("i")[1::PIECE_FIELDS])
    if num_held != len(positions):
        raise RuntimeError(f"chunks hold {num_held} of {len(positions)} tokens to copy")
    first_block, end_block = positions.start // block_size, -(-positions.stop // block_size)
    own = tuple([ids[first_block:end_block] for ids in block_ids])
    return Copy(handle, positions.start, len(positions), pieces, own, block_size)


def _without(pieces: bytes, num_tokens: int) -> bytes:
    """The pieces less so many tokens at the begin."""
    numbers = np.frombuffer(pieces, dtype=np.int32).reshape(-1, PIECE_FIELDS)
    ends = numbers[:, 1].cumsum()
    kept = int(np.searchsorted(ends, num_tokens, side="right"))
    left = numbers[kept:].copy()
    num_cut = left[0, 1] - (ends[kept] - num_tokens)
    left[0] += (num_cut, -num_cut, num_cut)
    return left.tobytes()
