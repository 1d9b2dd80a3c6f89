"""From the credential in a call's metadata to a principal, and which principal may call what.

The credential is `authorization: Bearer <secret>`. Health and reflection need none.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Protocol

from inferscale_core.errors import PermissionDenied, Unauthenticated
from inferscale_core.rpc.identity import (
    InternalPrincipal,
    OperatorPrincipal,
    Principal,
    TenantPrincipal,
)

AUTHORIZATION = "authorization"
_SCHEME = "bearer "

_TENANT = (TenantPrincipal,)
_OPERATOR = (OperatorPrincipal,)
_INTERNAL = (InternalPrincipal,)

_ALLOWED_BY_SERVICE: dict[str, tuple[type[Principal], ...]] = {
    "inferscale.v1.MemoryService": _TENANT,
    "inferscale.v1.ChatService": _TENANT,
    "inferscale.v1.TenantService": (TenantPrincipal, OperatorPrincipal),
    "inferscale.v1.SyncService": _INTERNAL,
    "inferscale.v1.WorkerService": _INTERNAL,
}
_ALLOWED_BY_METHOD: dict[str, tuple[type[Principal], ...]] = {
    "inferscale.v1.TenantService/CreateTenant": _OPERATOR,
    "inferscale.v1.TenantService/SetQuotas": _OPERATOR,
    "inferscale.v1.SyncService/RemoveWorker": _OPERATOR,
}


class Authenticator(Protocol):
    """Control looks keys up in its store; a worker knows one token."""

    async def authenticate(self, credential: str) -> Principal:
        """Raises Unauthenticated when the credential is not valid."""
        ...


class SharedTokens:
    """The internal and the operator's token. An empty token is nobody's.

    Alone it is the authenticator of a worker; control asks it first, then its API keys.
    """

    def __init__(self, *, internal: str = "", operator: str = "") -> None:
        self._secrets: tuple[tuple[str, Principal], ...] = (
            (internal, InternalPrincipal()),
            (operator, OperatorPrincipal()),
        )

    def principal_of(self, credential: str) -> Principal | None:
        """None when it is neither token. Takes as long for a near miss as for any other."""
        found: Principal | None = None
        for secret, principal in self._secrets:
            if hmac.compare_digest(secret.encode(), credential.encode()) and secret:
                found = principal
        return found

    async def authenticate(self, credential: str) -> Principal:
        principal = self.principal_of(credential)
        if principal is None:
            raise Unauthenticated("the credential is not valid")
        return principal


def credential_from(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Raises Unauthenticated when there is none, or more than one."""
    found = [value for key, value in metadata if key == AUTHORIZATION]
    if len(found) != 1:
        raise Unauthenticated("give one credential as metadata `authorization: Bearer <secret>`")
    value = found[0]
    if not isinstance(value, str) or not value.lower().startswith(_SCHEME):
        raise Unauthenticated("the credential is not of the form `Bearer <secret>`")
    return value[len(_SCHEME) :].strip()


def allowed_callers(method: str) -> tuple[type[Principal], ...]:
    """method: `package.Service/Method`. Empty for one without a rule."""
    service = method.partition("/")[0]
    return _ALLOWED_BY_METHOD.get(method, _ALLOWED_BY_SERVICE.get(service, ()))


def check_allowed(principal: Principal, method: str) -> None:
    """Raises PermissionDenied unless `principal` is one of `allowed_callers`."""
    if not isinstance(principal, allowed_callers(method)):
        raise PermissionDenied(f"this credential may not call {method}")
