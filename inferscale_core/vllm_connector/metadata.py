"""What the two sides of the connector share: the work of one engine step, and its acknowledgement.

Source: vLLM 0.26 and 0.32, distributed/kv_transfer/kv_connector/v1/base.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

PAD_SLOT = -1
"""No slot; skipped."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Tokens to copy between arena rows and the engine's slots, for one request.

    arena_slots, origins, positions: [num_tokens], int64. positions: where the tokens are in the
    request's prompt. origins: where they were when their keys were computed. cache_slots:
    [num_groups, num_tokens], int64: a slot for each KV cache group, PAD_SLOT where the group holds
    no block for the token any more.
    """

    handle: str
    arena_slots: NDArray[np.int64]
    cache_slots: NDArray[np.int64]
    origins: NDArray[np.int64]
    positions: NDArray[np.int64]


@dataclass(slots=True)
class StepMetadata(KVConnectorMetadata):
    """Work of one step, in this order: zero rows, inject before the forward, capture after it.

    step_id is 0 when there is nothing to do and nothing to acknowledge.
    """

    step_id: int = 0
    zero: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    inject: list[Copy] = field(default_factory=list)
    capture: list[Copy] = field(default_factory=list)


@dataclass(slots=True)
class StepDone(KVConnectorWorkerMetadata):
    """Steps that a rank has executed. inject_ms: host time of each step's injection."""

    step_ids: list[int]
    inject_ms: dict[int, float] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Ranks execute the same steps; the slowest one's time counts."""
        assert isinstance(other, StepDone)
        assert self.step_ids == other.step_ids, "ranks executed different steps"
        times = {
            step: max(self.inject_ms.get(step, 0.0), other.inject_ms.get(step, 0.0))
            for step in {*self.inject_ms, *other.inject_ms}
        }
        return StepDone(self.step_ids, times)
