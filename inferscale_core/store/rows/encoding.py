"""Tables of encode states and of what each chunk saw."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    ForeignKeyConstraint,
    Identity,
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
    IdColumn,
    MomentColumn,
    TextColumn,
)

_ENCODING_KEY = ["encodings.tenant_id", "encodings.encoding_id"]


class EncodingRow(Base):
    """The encode state of one fact revision for one target.

    model_revision and recipe_hash are empty while no worker of the model has ever joined.
    """

    __tablename__ = "encodings"

    tenant_id: Mapped[IdColumn]
    encoding_id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    user_id: Mapped[IdColumn]
    fact_id: Mapped[IdColumn]
    revision: Mapped[int] = mapped_column(Integer)
    model: Mapped[IdColumn]
    model_revision: Mapped[IdColumn]
    recipe: Mapped[IdColumn]
    recipe_hash: Mapped[IdColumn]
    state: Mapped[IdColumn]
    reason: Mapped[TextColumn]
    chunk_digest: Mapped[IdColumn]
    num_tokens: Mapped[int] = mapped_column(Integer)
    updated_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "encoding_id", name="encodings_pkey"),
        UniqueConstraint(
            "tenant_id",
            "fact_id",
            "revision",
            "model",
            "model_revision",
            "recipe_hash",
            name="encodings_target_key",
        ),
        ForeignKeyConstraint(
            ["tenant_id", "fact_id", "revision"],
            ["facts.tenant_id", "facts.fact_id", "facts.revision"],
            name="encodings_fact_fkey",
            ondelete="CASCADE",
        ),
        Index("encodings_user_idx", "tenant_id", "user_id", "state"),
        {"info": TENANT_TABLE},
    )


class ChunkFactRow(Base):
    """The chunk of `encoding_id` had this fact revision in its prefix. is_text: as text, so that
    what the fact's own chunk saw is not seen through it."""

    __tablename__ = "chunk_facts"

    tenant_id: Mapped[IdColumn]
    encoding_id: Mapped[int] = mapped_column(BigInteger)
    prefix_fact_id: Mapped[IdColumn]
    prefix_revision: Mapped[int] = mapped_column(Integer)
    is_text: Mapped[bool] = mapped_column(Boolean, server_default=sql_text("false"))

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "encoding_id", "prefix_fact_id", name="chunk_facts_pkey"),
        ForeignKeyConstraint(
            ["tenant_id", "encoding_id"],
            _ENCODING_KEY,
            name="chunk_facts_encoding_fkey",
            ondelete="CASCADE",
        ),
        Index("chunk_facts_prefix_idx", "tenant_id", "prefix_fact_id"),
        {"info": TENANT_TABLE},
    )


class ChunkTurnRow(Base):
    """The chunk of `encoding_id` had this turn in its prefix."""

    __tablename__ = "chunk_turns"

    tenant_id: Mapped[IdColumn]
    encoding_id: Mapped[int] = mapped_column(BigInteger)
    turn_id: Mapped[IdColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "encoding_id", "turn_id", name="chunk_turns_pkey"),
        ForeignKeyConstraint(
            ["tenant_id", "encoding_id"],
            _ENCODING_KEY,
            name="chunk_turns_encoding_fkey",
            ondelete="CASCADE",
        ),
        Index("chunk_turns_turn_idx", "tenant_id", "turn_id"),
        {"info": TENANT_TABLE},
    )
