"""What the use cases of a user's memory give back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferscale_core.errors import InferScaleError, InvalidInput
from inferscale_core.ids import WorkerId
from inferscale_core.memory.deletion import DeletionReceipt
from inferscale_core.memory.encoding import EncodeStatus, EncodeTarget
from inferscale_core.memory.facts import Fact
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2
from inferscale_core.rpc.status import metadata_of


@dataclass(frozen=True, slots=True)
class Residency:
    """Where a fact's chunk is held now. `tier`: a value of the API's enum."""

    worker_id: WorkerId
    target: EncodeTarget
    tier: common_pb2.Tier


@dataclass(frozen=True, slots=True)
class Memory:
    """A fact and the state of its encode jobs, one for each model and recipe.

    `residency` is asked of the owning workers, and only where one fact is read.
    """

    fact: Fact
    statuses: tuple[EncodeStatus, ...] = ()
    residency: tuple[Residency, ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    memory: Memory
    memory_version: int
    already_existed: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one item of a batch was not stored. `field` is empty where no field is at fault.
    `metadata`: ids and limits, empty where only the code was kept."""

    code: str
    field: str
    message: str
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchItem:
    outcome: Memory | Refusal
    already_existed: bool = False


@dataclass(frozen=True, slots=True)
class BatchAdded:
    items: tuple[BatchItem, ...]
    memory_version: int


@dataclass(frozen=True, slots=True)
class Page:
    """`next_version` is None on the last page."""

    memories: tuple[Memory, ...]
    next_version: int | None
    memory_version: int


@dataclass(frozen=True, slots=True)
class Updated:
    memory: Memory
    memory_version: int
    dependants_dropped: int


@dataclass(frozen=True, slots=True)
class Deleted:
    receipt: DeletionReceipt
    memory_version: int


@dataclass(frozen=True, slots=True)
class Found:
    """Each memory with its cosine similarity to the query, nearest first."""

    results: tuple[tuple[Memory, float], ...]
    memory_version: int


@dataclass(frozen=True, slots=True)
class AppendedTurns:
    turn_ids: Sequence[str]
    memory_version: int


@dataclass(frozen=True, slots=True)
class RemovedTurns:
    turns_deleted: int
    dependants_dropped: int
    memory_version: int


def refusal_of(error: InferScaleError, field: str = "") -> Refusal:
    """`field` is where an error came from that names none itself."""
    if isinstance(error, InvalidInput):
        return Refusal(error.code, error.field, error.problem)
    return Refusal(error.code, field, str(error), metadata_of(error))
