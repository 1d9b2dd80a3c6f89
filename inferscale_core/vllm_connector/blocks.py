"""The engine's block tables of requests that are captured, and token positions as slots.

Source: vLLM 0.26 and 0.32, v1/core/sched/output.py (NewRequestData, CachedRequestData): block ids
of a request are not consecutive; those of a running request arrive as additions, those of a
resumed one as a replacement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inferscale_core.kernels.paged import FIRST_CACHE_LINE
from inferscale_core.kv.tiers import Place
from inferscale_core.vllm_connector.metadata import PAD_SLOT, Copy

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput


_lines = attrgetter("lines")

BlockIds = tuple[list[int], ...]
"""For each KV cache group the ids of a request's blocks, in order."""

NULL_BLOCK = 0
"""Stands where a sliding window has given up a block. Source: vLLM, v1/core/block_pool.py."""


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
    """The copy of prompt tokens `positions`; `places`, in the arena, hold those from `first` on."""
    first_block, end_block = positions.start // block_size, -(-positions.stop // block_size)
    # Of whole blocks, so that their slots are written at once; then those of `positions`.
    num_lines = FIRST_CACHE_LINE + len(block_ids)
    whole = np.empty((num_lines, end_block - first_block, block_size), dtype=np.int64)
    for slots, ids in zip(whole[FIRST_CACHE_LINE:], block_ids, strict=True):
        _write_slots(ids[first_block:end_block], block_size, slots)
    offset = positions.start - first_block * block_size
    lines = whole.reshape(num_lines, -1)[:, offset : offset + len(positions)]
    joined = np.frombuffer(b"".join(map(_lines, places)), dtype=np.int64)
    lines[:2] = joined.reshape(-1, 2)[positions.start - first : positions.stop - first].T
    lines[2] = np.arange(positions.start, positions.stop)
    return Copy(handle, lines)


def _write_slots(block_ids: list[int], block_size: int, slots: NDArray[np.int64]) -> None:
    """slots: [num_blocks, block_size], int64; PAD_SLOT in null blocks."""
    starts = np.array(block_ids, dtype=np.int64) * block_size
    np.add(starts[:, None], _offsets(block_size), out=slots)
    if NULL_BLOCK in block_ids:
        slots[starts == NULL_BLOCK] = PAD_SLOT


@cache
def _offsets(block_size: int) -> NDArray[np.int64]:
    return np.arange(block_size)
