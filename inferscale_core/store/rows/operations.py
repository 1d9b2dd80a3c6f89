"""Tables of requests, receipts, workers and the audit trail. None of them holds text of a fact."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from inferscale_core.store.rows.base import (
    APPEND_ONLY_TENANT_TABLE,
    SHARED_TABLE,
    TENANT_TABLE,
    Base,
    IdColumn,
    IdsColumn,
    JsonColumn,
    MomentColumn,
)


class RequestRow(Base):
    """A request id that was used. `outcome` holds ids; it is null until the request's commit."""

    __tablename__ = "requests"

    tenant_id: Mapped[IdColumn]
    request_id: Mapped[IdColumn]
    operation: Mapped[IdColumn]
    content_hash: Mapped[IdColumn]
    outcome: Mapped[JsonColumn | None]
    created_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "request_id", name="requests_pkey"),
        ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="requests_tenant_fkey"),
        {"info": TENANT_TABLE},
    )


class ReceiptRow(Base):
    __tablename__ = "deletion_receipts"

    tenant_id: Mapped[IdColumn]
    receipt_id: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    fact_id: Mapped[IdColumn]
    deleted_at: Mapped[MomentColumn]
    source_turn_ids: Mapped[IdsColumn]
    dependant_fact_ids: Mapped[IdsColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "receipt_id", name="deletion_receipts_pkey"),
        ForeignKeyConstraint(
            ["tenant_id", "user_id"],
            ["users.tenant_id", "users.user_id"],
            name="deletion_receipts_user_fkey",
        ),
        {"info": TENANT_TABLE},
    )


class ReceiptLineRow(Base):
    """`worker_id` is empty for Postgres."""

    __tablename__ = "deletion_lines"

    tenant_id: Mapped[IdColumn]
    receipt_id: Mapped[IdColumn]
    worker_id: Mapped[IdColumn]
    holder: Mapped[IdColumn]
    state: Mapped[IdColumn]
    count: Mapped[int] = mapped_column(BigInteger)
    updated_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint(
            "tenant_id", "receipt_id", "worker_id", "holder", name="deletion_lines_pkey"
        ),
        ForeignKeyConstraint(
            ["tenant_id", "receipt_id"],
            ["deletion_receipts.tenant_id", "deletion_receipts.receipt_id"],
            name="deletion_lines_receipt_fkey",
        ),
        Index(
            "deletion_lines_pending_idx", "worker_id", postgresql_where=text("state = 'pending'")
        ),
        {"info": TENANT_TABLE},
    )


class HolderRow(Base):
    """The worker has held this user since it started, in its cache or its arena."""

    __tablename__ = "holders"

    tenant_id: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    worker_id: Mapped[IdColumn]
    since: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "user_id", "worker_id", name="holders_pkey"),
        ForeignKeyConstraint(
            ["tenant_id", "user_id"], ["users.tenant_id", "users.user_id"], name="holders_user_fkey"
        ),
        Index("holders_worker_idx", "worker_id"),
        {"info": TENANT_TABLE},
    )


class AuditRow(Base):
    """Who did what, when, to which ids. The services may add rows, not change or remove them."""

    __tablename__ = "audit"

    tenant_id: Mapped[IdColumn]
    audit_id: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    at: Mapped[MomentColumn]
    actor: Mapped[IdColumn]
    action: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    request_id: Mapped[IdColumn]
    ids: Mapped[JsonColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "audit_id", name="audit_pkey"),
        ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="audit_tenant_fkey"),
        {"info": APPEND_ONLY_TENANT_TABLE},
    )


class WorkerRow(Base):
    """Not a tenant's: a worker serves many. Says nothing about any user. joined_at: when the
    instance joined first."""

    __tablename__ = "workers"

    worker_id: Mapped[IdColumn]
    instance_id: Mapped[IdColumn]
    address: Mapped[IdColumn]
    model: Mapped[IdColumn]
    model_revision: Mapped[IdColumn]
    recipe: Mapped[IdColumn]
    recipe_hash: Mapped[IdColumn]
    embedder_id: Mapped[IdColumn]
    embedder_revision: Mapped[IdColumn]
    embedder_dimension: Mapped[int] = mapped_column(Integer)
    draining: Mapped[bool] = mapped_column(Boolean)
    max_fact_tokens: Mapped[int] = mapped_column(Integer)
    joined_at: Mapped[MomentColumn]
    last_seen_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("worker_id", name="workers_pkey"),
        Index("workers_model_idx", "model"),
        {"info": SHARED_TABLE},
    )
