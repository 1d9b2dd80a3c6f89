"""Between TenantService's messages and the domain."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import TenantId
from inferscale_core.memory.tenants import ApiKey, Quotas, Tenant
from inferscale_core.rpc.pb.inferscale.v1 import tenant_pb2
from services.control.validation import (
    check_count,
    check_identifier,
    check_label,
    check_range,
    check_tenant_id,
)

MAX_NAME_CHARACTERS = 256
MAX_LABEL_CHARACTERS = 128
MAX_MODELS = 16
MAX_QUOTA = 2**53
"""Fits into every client's numbers, JSON ones included."""


@dataclass(frozen=True, slots=True)
class CreateTenant:
    tenant_id: TenantId
    display_name: str
    models: tuple[str, ...]
    quotas: Quotas


def create_tenant_from_proto(request: tenant_pb2.CreateTenantRequest) -> CreateTenant:
    check_count("models", request.models, minimum=1, maximum=MAX_MODELS)
    models = tuple(
        check_identifier(f"models[{index}]", model) for index, model in enumerate(request.models)
    )
    if len(set(models)) != len(models):
        raise InvalidInput("models", "name one model twice")
    return CreateTenant(
        tenant_id=TenantId(check_tenant_id("tenant_id", request.tenant_id)),
        display_name=check_label("display_name", request.display_name, MAX_NAME_CHARACTERS),
        models=models,
        quotas=quotas_from_proto(request.quotas),
    )


def quotas_from_proto(quotas: tenant_pb2.Quotas) -> Quotas:
    """A field that is 0 takes its default."""
    default = Quotas()
    return Quotas(
        max_facts=_quota("quotas.max_facts", quotas.max_facts, default.max_facts),
        max_facts_per_user=_quota(
            "quotas.max_facts_per_user", quotas.max_facts_per_user, default.max_facts_per_user
        ),
    )


def label_from_proto(label: str) -> str:
    return check_label("label", label, MAX_LABEL_CHARACTERS)


def optional_tenant_from_proto(tenant_id: str) -> TenantId | None:
    return TenantId(check_tenant_id("tenant_id", tenant_id)) if tenant_id else None


def tenant_to_proto(tenant: Tenant) -> tenant_pb2.Tenant:
    created_at = Timestamp()
    created_at.FromDatetime(tenant.created_at)
    return tenant_pb2.Tenant(
        tenant_id=tenant.tenant_id,
        display_name=tenant.display_name,
        models=tenant.models,
        quotas=tenant_pb2.Quotas(
            max_facts=tenant.quotas.max_facts,
            max_facts_per_user=tenant.quotas.max_facts_per_user,
        ),
        created_at=created_at,
    )


def key_to_proto(key: ApiKey) -> tenant_pb2.ApiKey:
    message = tenant_pb2.ApiKey(key_id=key.key_id, label=key.label)
    message.created_at.FromDatetime(key.created_at)
    if key.revoked_at is not None:
        message.revoked_at.FromDatetime(key.revoked_at)
    return message


def _quota(field: str, value: int, default: int) -> int:
    return check_range(field, value or default, minimum=1, maximum=MAX_QUOTA)
