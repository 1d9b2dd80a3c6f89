"""Tenants, their limits and their keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from inferscale_core.ids import TenantId


@dataclass(frozen=True, slots=True)
class Quotas:
    """Live facts of all users of a tenant, and of one user, at most."""

    max_facts: int = 1_000_000
    max_facts_per_user: int = 10_000


@dataclass(frozen=True, slots=True)
class Tenant:
    """`models`: names of the models that the tenant's facts are encoded for, the default first."""

    tenant_id: TenantId
    display_name: str
    models: tuple[str, ...]
    created_at: datetime
    quotas: Quotas = field(default_factory=Quotas)
    num_facts: int = 0


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What may be shown of a key; its secret is known to the tenant alone."""

    key_id: str
    tenant_id: TenantId
    label: str
    created_at: datetime
    revoked_at: datetime | None = None
