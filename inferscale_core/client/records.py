"""What the client takes and gives: plain immutable values. Times are aware UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from inferscale_core.errors import InferScaleError


class EncodeState(StrEnum):
    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"


class Tier(StrEnum):
    GPU = "gpu"
    HOST = "host"
    DISK = "disk"


class PurgeState(StrEnum):
    PURGED = "purged"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class EncodeStatus:
    """How far a fact is encoded for one model and recipe. `reason`: an error code, or empty.

    Behind the code `too_long` follow the fact's tokens and the most that fit.
    """

    model_revision: str
    recipe: str
    state: EncodeState
    reason: str
    num_tokens: int
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class Residency:
    """Where a fact's chunk is held now."""

    worker_id: str
    model_revision: str
    recipe: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class Memory:
    """One fact. `residency` is filled by `get_memory` only."""

    memory_id: str
    user_id: str
    text: str
    revision: int
    memory_version: int
    created_at: datetime | None
    updated_at: datetime | None
    occurred_at: datetime | None = None
    conversation_id: str | None = None
    turn_ids: tuple[str, ...] = ()
    encode_status: tuple[EncodeStatus, ...] = ()
    residency: tuple[Residency, ...] = ()

    @property
    def is_encoded(self) -> bool:
        """Encoded for every model of the tenant, so that a chat can inject it."""
        done = [status.state is EncodeState.DONE for status in self.encode_status]
        return bool(done) and all(done)


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A statement to store: 1 to 8,000 characters that make sense on their own.

    `occurred_at` is when what it states took place; a naive time is taken as UTC.
    """

    text: str
    occurred_at: datetime | None = None
    conversation_id: str | None = None
    turn_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AddedMemory:
    """`already_existed`: the user had this statement, or this request id was seen before."""

    memory: Memory
    memory_version: int
    already_existed: bool


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One item of a batch: stored, or refused with an error."""

    memory: Memory | None
    error: InferScaleError | None
    already_existed: bool


@dataclass(frozen=True, slots=True)
class BatchAdded:
    """`items` in the order of the request."""

    items: tuple[BatchItem, ...]
    memory_version: int


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Oldest memory version first. `next_page_token` is None on the last page."""

    memories: tuple[Memory, ...]
    next_page_token: str | None
    memory_version: int


@dataclass(frozen=True, slots=True)
class UpdatedMemory:
    memory: Memory
    memory_version: int
    dependants_dropped: int


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """What one holder has removed. `worker_id` is None for the database."""

    holder: str
    worker_id: str | None
    state: PurgeState
    count: int
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeletionReceipt:
    """`source_turn_ids`: turns that still exist and may still state the fact."""

    receipt_id: str
    memory_id: str
    deleted_at: datetime | None
    lines: tuple[ReceiptLine, ...]
    source_turn_ids: tuple[str, ...]
    dependant_memory_ids: tuple[str, ...]

    @property
    def is_purged(self) -> bool:
        """No holder is still to acknowledge."""
        return all(line.state is PurgeState.PURGED for line in self.lines)


@dataclass(frozen=True, slots=True)
class DeletedMemory:
    receipt: DeletionReceipt
    memory_version: int


@dataclass(frozen=True, slots=True)
class ScoredMemory:
    """`score`: cosine similarity, -1 to 1."""

    memory: Memory
    score: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Nearest first."""

    memories: tuple[ScoredMemory, ...]
    memory_version: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation. The service gives an id when `turn_id` is None."""

    speaker: str
    text: str
    occurred_at: datetime | None = None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class AppendedTurns:
    turn_ids: tuple[str, ...]
    memory_version: int


@dataclass(frozen=True, slots=True)
class DeletedTurns:
    turns_deleted: int
    dependants_dropped: int
    memory_version: int


@dataclass(frozen=True, slots=True)
class Quotas:
    max_facts: int
    max_facts_per_user: int


@dataclass(frozen=True, slots=True)
class Tenant:
    """`models`: what this tenant's facts are encoded for; the first is the default."""

    tenant_id: str
    display_name: str
    models: tuple[str, ...]
    quotas: Quotas
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class TenantUsage:
    tenant: Tenant
    num_facts: int


@dataclass(frozen=True, slots=True)
class CreatedTenant:
    """`api_key` is shown here once."""

    tenant: Tenant
    api_key: str
    key_id: str


@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: str
    label: str
    created_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class CreatedApiKey:
    """`secret` is shown here once."""

    key: ApiKey
    secret: str
