"""What a delete removed, holder by holder. Ids and counts, never text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from inferscale_core.ids import FactId, TurnId, UserId, WorkerId


class Holder(StrEnum):
    """ROW, EMBEDDING and DEPENDANTS are Postgres's own; a worker has one line for each other."""

    ROW = "row"
    EMBEDDING = "embedding"
    DEPENDANTS = "dependants"
    USER_CACHE = "user_cache"
    ARENA = "arena"
    HOST = "host"
    DISK = "disk"


WORKER_HOLDERS = (Holder.USER_CACHE, Holder.ARENA, Holder.HOST, Holder.DISK)


class PurgeState(StrEnum):
    PURGED = "purged"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """`worker_id` is None for Postgres. `count`: rows, chunks or entries removed there."""

    holder: Holder
    worker_id: WorkerId | None
    state: PurgeState
    count: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class DeletionReceipt:
    """source_turn_ids: turns that still exist and may still state the fact.

    dependant_fact_ids: facts whose chunks had seen this one, directly or through others.
    """

    receipt_id: str
    user_id: UserId
    fact_id: FactId
    deleted_at: datetime
    lines: tuple[ReceiptLine, ...]
    source_turn_ids: tuple[TurnId, ...] = ()
    dependant_fact_ids: tuple[FactId, ...] = ()
