"""Who makes a call: a tenant's key, the operator, or one of our own processes.

Set by the tenant interceptor from the credential, and read by servicers; no field of a request can
change it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from inferscale_core.errors import PermissionDenied
from inferscale_core.ids import TenantId
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import bind_for_task
from inferscale_core.telemetry.tracing import annotate


@dataclass(frozen=True, slots=True)
class TenantPrincipal:
    """A tenant, through one of its API keys."""

    tenant_id: TenantId
    key_id: str


@dataclass(frozen=True, slots=True)
class OperatorPrincipal:
    """Whoever runs the service: creates tenants, sets quotas, removes workers."""


@dataclass(frozen=True, slots=True)
class InternalPrincipal:
    """Control or a worker. Names tenants and users in its requests."""


Principal = TenantPrincipal | OperatorPrincipal | InternalPrincipal

_principal: ContextVar[Principal] = ContextVar("inferscale_principal")


def current_principal() -> Principal:
    """Whoever makes the call being served. Only inside one."""
    principal = _principal.get(None)
    assert principal is not None, "no call is being served"
    return principal


def current_tenant() -> TenantId:
    """The tenant whose key the call carries. Raises PermissionDenied for any other caller."""
    principal = current_principal()
    if not isinstance(principal, TenantPrincipal):
        raise PermissionDenied("this call needs the credential of a tenant")
    return principal.tenant_id


def serve_as(principal: Principal) -> None:
    """Make `principal` the caller until the current task, which serves one call, ends."""
    _principal.set(principal)
    bind_for_task(**_log_fields(principal))
    if isinstance(principal, TenantPrincipal):
        annotate({names.TENANT_ID: principal.tenant_id})


def _log_fields(principal: Principal) -> dict[str, str]:
    return {"tenant_id": principal.tenant_id} if isinstance(principal, TenantPrincipal) else {}
