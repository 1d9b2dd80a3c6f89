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

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.tiers import Tier
from inferscale_core.vllm_connector.copies import Copy


@dataclass(frozen=True, slots=True)
class MoveRows:
    """Copy a chunk's rows between tiers. rows: [num_tokens], int64; None on disk. record: what the
    disk keeps beside the rows, where source or target is the disk."""

    op_id: int
    source: Tier
    target: Tier
    source_rows: NDArray[np.int64] | None
    target_rows: NDArray[np.int64] | None
    record: DiskRecord | None = None


@dataclass(frozen=True, slots=True)
class ZeroHostRows:
    op_id: int
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RemoveRecords:
    op_id: int
    keys: tuple[ChunkKey, ...]


@dataclass(frozen=True, slots=True)
class AdmitRecords:
    """Compare a user's records on disk with what the user's facts should have, and seal those that
    are left under the newest key. sealed_key: see `kv.disk_secret`."""

    op_id: int
    scope: UserScope
    sealed_key: str
    wanted: tuple[ChunkKey, ...]


TierOp = MoveRows | ZeroHostRows | RemoveRecords | AdmitRecords
"""Executed beside the steps, in the order in which they were named, zeroing first. Never waited
for by a forward pass."""


@dataclass(frozen=True, slots=True)
class OpResult:
    """What one rank says of one operation. evicted: records that it gave up to make room.
    admitted: of AdmitRecords, what this rank has."""

    succeeded: bool
    evicted: tuple[ChunkKey, ...] = ()
    admitted: tuple[DiskRecord, ...] = ()


@dataclass(slots=True)
class StepMetadata(KVConnectorMetadata):
    """Work of one step, in this order: zero rows, inject before the forward, capture after it.
    tier_ops go on beside this and later steps.

    step_id is 0 when nothing of the step itself is to be done and acknowledged.
    """

    step_id: int = 0
    zero: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    inject: list[Copy] = field(default_factory=list)
    capture: list[Copy] = field(default_factory=list)
    tier_ops: list[TierOp] = field(default_factory=list)


@dataclass(slots=True)
class StepDone(KVConnectorWorkerMetadata):
    """Steps that a rank has executed. inject_ms: host time of each step's injection. tier_results:
    by operation that has ended since the last report, one result of each rank that says so."""

    step_ids: list[int]
    inject_ms: dict[int, float] = field(default_factory=dict)
    tier_results: dict[int, list[OpResult]] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """Ranks execute the same steps; the slowest one's time counts."""
        assert isinstance(other, StepDone)
        assert self.step_ids == other.step_ids, "ranks executed different steps"
        times = {
            step: max(self.inject_ms.get(step, 0.0), other.inject_ms.get(step, 0.0))
            for step in {*self.inject_ms, *other.inject_ms}
        }
        results = {op_id: list(found) for op_id, found in self.tier_results.items()}
        for op_id, found in other.tier_results.items():
            results.setdefault(op_id, []).extend(found)
        return StepDone(self.step_ids, times, results)
