"""Tables of tenants, their keys and their users."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    ForeignKeyConstraint,
    LargeBinary,
    PrimaryKeyConstraint,
    UniqueConstraint,
)
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


class TenantRow(Base):
    """`num_facts` counts the live facts, so that a quota check reads one row."""

    __tablename__ = "tenants"

    tenant_id: Mapped[IdColumn]
    display_name: Mapped[TextColumn]
    models: Mapped[IdsColumn]
    max_facts: Mapped[CountColumn]
    max_facts_per_user: Mapped[CountColumn]
    num_facts: Mapped[int] = mapped_column(BigInteger, server_default="0")
    created_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", name="tenants_pkey"),
        {"info": TENANT_TABLE},
    )


class ApiKeyRow(Base):
    """The secret itself is never stored: `secret_hash` is its SHA-256."""

    __tablename__ = "api_keys"

    tenant_id: Mapped[IdColumn]
    key_id: Mapped[IdColumn]
    label: Mapped[TextColumn]
    secret_hash: Mapped[IdColumn]
    created_at: Mapped[MomentColumn]
    revoked_at: Mapped[MomentColumn | None]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "key_id", name="api_keys_pkey"),
        UniqueConstraint("secret_hash", name="api_keys_secret_hash_key"),
        ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="api_keys_tenant_fkey"),
        {"info": TENANT_TABLE},
    )


class UserRow(Base):
    """One row for each user that was ever written. Writers of the user's memory lock it first."""

    __tablename__ = "users"

    tenant_id: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    memory_version: Mapped[int] = mapped_column(BigInteger, server_default="0")
    kv_epoch: Mapped[int] = mapped_column(BigInteger, server_default="0")
    num_facts: Mapped[int] = mapped_column(BigInteger, server_default="0")
    created_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "user_id", name="users_pkey"),
        ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="users_tenant_fkey"),
        {"info": TENANT_TABLE},
    )


class DiskKeyRow(Base):
    """The key of the user's present epoch, once a worker has asked for it. Unlogged: see the
    migration that makes it, whose trigger also destroys it when the epoch is raised."""

    __tablename__ = "disk_keys"

    tenant_id: Mapped[IdColumn]
    user_id: Mapped[IdColumn]
    kv_epoch: Mapped[CountColumn]
    secret: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[MomentColumn]

    __table_args__ = (
        PrimaryKeyConstraint("tenant_id", "user_id", name="disk_keys_pkey"),
        ForeignKeyConstraint(
            ["tenant_id", "user_id"],
            ["users.tenant_id", "users.user_id"],
            name="disk_keys_user_fkey",
        ),
        {"info": TENANT_TABLE},
    )
