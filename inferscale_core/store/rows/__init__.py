"""The tables, one class each. The migrations are the authority; a test holds the two together."""

from inferscale_core.store.rows.base import Base
from inferscale_core.store.rows.encoding import ChunkFactRow, ChunkTurnRow, EncodingRow
from inferscale_core.store.rows.memory import (
    ConversationRow,
    FactEmbeddingRow,
    FactRow,
    RemovalRow,
    TurnRow,
)
from inferscale_core.store.rows.operations import (
    AuditRow,
    HolderRow,
    ReceiptLineRow,
    ReceiptRow,
    RequestRow,
    WorkerRow,
)
from inferscale_core.store.rows.tenants import ApiKeyRow, DiskKeyRow, TenantRow, UserRow

__all__ = [
    "ApiKeyRow",
    "AuditRow",
    "Base",
    "ChunkFactRow",
    "ChunkTurnRow",
    "ConversationRow",
    "DiskKeyRow",
    "EncodingRow",
    "FactEmbeddingRow",
    "FactRow",
    "HolderRow",
    "ReceiptLineRow",
    "ReceiptRow",
    "RemovalRow",
    "RequestRow",
    "TenantRow",
    "TurnRow",
    "UserRow",
    "WorkerRow",
]
