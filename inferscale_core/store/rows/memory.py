"""Tables of what is remembered: facts, their embeddings, turns, and the ids of what was removed."""

from __future__ import annotations

from typing import Any

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import (
    Boolean,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    UniqueConstraint,
)
from sqlalchemy import text as sql_text
from sqlalchemy.orm import Mapped, mapped_column

from inferscale_core.store.rows.base import (
    TENANT_TABLE,
    Base,
    CountColumn,
    IdColumn,
    IdsColumn,
    MomentColumn,
    TextColumn,
)

_USER_KEY = ["users.tenant_id", "users.user_id"]


class FactRow(Base):
    """One revision of a fact. Rows are added and marked superseded while the fact lives; a delete
    removes them all."""

    __tablename__ = "facts"

    tenant_id: Mapped[IdColumn]
    fact_id: Mapped[IdColumn]
    revision: Mapped[int] = mapped_column(Integer)
    user_id: Mapped[IdColumn]
    text: Mapped[TextColumn]
    occurred_at: Mapped[MomentColumn | None]
    conversation_id: Mapped[IdColumn | None]
    turn_ids: Mapped[IdsColumn]
    memory_version: Mapped[CountColumn]
    is_live: Mapped[bool] = mapped_column(Boolean)
    content_hash: Mapped[IdColumn]
    created_at: Mapped[MomentColumn]
    updated_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "fact_id", "revision", name="facts_pkey"),
        ForeignKeyConstraint(["tenant_id", "user_id"], _USER_KEY, name="facts_user_fkey"),
        Index(
            "facts_live_key",
            "tenant_id",
            "fact_id",
            unique=True,
            postgresql_where=sql_text("is_live"),
        ),
        Index(
            "facts_live_content_key",
            "tenant_id",
            "user_id",
            "content_hash",
            unique=True,
            postgresql_where=sql_text("is_live"),
        ),
        Index(
            "facts_live_version_key",
            "tenant_id",
            "user_id",
            "memory_version",
            unique=True,
            postgresql_where=sql_text("is_live"),
        ),
        {"info": TENANT_TABLE},
    )


class FactEmbeddingRow(Base):
    """The embedding of a fact's live revision. Its dimension is set when the table is created.

    The HNSW index is part of the migrations alone, since its form depends on the dimension.
    """

    __tablename__ = "fact_embeddings"

    tenant_id: Mapped[IdColumn]
    fact_id: Mapped[IdColumn]
    revision: Mapped[int] = mapped_column(Integer)
    user_id: Mapped[IdColumn]
    embedding: Mapped[Any] = mapped_column(VECTOR(), nullable=False)

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "fact_id", name="fact_embeddings_pkey"),
        ForeignKeyConstraint(
            ["tenant_id", "fact_id", "revision"],
            ["facts.tenant_id", "facts.fact_id", "facts.revision"],
            name="fact_embeddings_fact_fkey",
            ondelete="CASCADE",
        ),
        Index("fact_embeddings_user_idx", "tenant_id", "user_id"),
        {"info": TENANT_TABLE},
    )


class ConversationRow(Base):
    """`next_position` never falls, so a position is not given twice."""

    __tablename__ = "conversations"

    tenant_id: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    conversation_id: Mapped[IdColumn]
    next_position: Mapped[CountColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "user_id", "conversation_id", name="conversations_pkey"),
        ForeignKeyConstraint(["tenant_id", "user_id"], _USER_KEY, name="conversations_user_fkey"),
        {"info": TENANT_TABLE},
    )


class TurnRow(Base):
    __tablename__ = "turns"

    tenant_id: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    turn_id: Mapped[IdColumn]
    conversation_id: Mapped[IdColumn]
    position: Mapped[CountColumn]
    speaker: Mapped[TextColumn]
    text: Mapped[TextColumn]
    occurred_at: Mapped[MomentColumn | None]
    memory_version: Mapped[CountColumn]
    created_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "user_id", "turn_id", name="turns_pkey"),
        ForeignKeyConstraint(
            ["tenant_id", "user_id", "conversation_id"],
            [
                "conversations.tenant_id",
                "conversations.user_id",
                "conversations.conversation_id",
            ],
            name="turns_conversation_fkey",
        ),
        UniqueConstraint(
            "tenant_id", "user_id", "conversation_id", "position", name="turns_position_key"
        ),
        Index("turns_version_key", "tenant_id", "user_id", "memory_version", unique=True),
        {"info": TENANT_TABLE},
    )


class RemovalRow(Base):
    """The id of a fact or turn that is gone, and the version that removed it. No text.

    Kept for good: a worker that was away for a year must still learn what to forget, and a request
    that is replayed must learn that its fact was deleted.
    """

    __tablename__ = "removals"

    tenant_id: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    memory_version: Mapped[CountColumn]
    kind: Mapped[IdColumn]
    item_id: Mapped[IdColumn]
    removed_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "user_id", "memory_version", name="removals_pkey"),
        ForeignKeyConstraint(["tenant_id", "user_id"], _USER_KEY, name="removals_user_fkey"),
        Index("removals_item_idx", "tenant_id", "user_id", "item_id"),
        {"info": TENANT_TABLE},
    )
