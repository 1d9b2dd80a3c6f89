"""API keys: how they are made, what is stored of them, and who a credential belongs to."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from inferscale_core.errors import PermissionDenied, Unauthenticated
from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.identity import Principal, TenantPrincipal, current_principal
from inferscale_core.store import Store, new_id

KEY_PREFIX = "isk_"
_SECRET_BYTES = 32
_MAX_SECRET = 256
"""Characters of a credential that are looked at; ours have 47."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """`secret` is shown once; only `secret_hash` is stored."""

    key_id: str
    secret: str
    secret_hash: str


def new_key() -> NewKey:
    secret = KEY_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    return NewKey(key_id=new_id(), secret=secret, secret_hash=hash_of(secret))


def hash_of(secret: str) -> str:
    """SHA-256: a key has 256 random bits, so there is nothing that a slow hash could protect."""
    return hashlib.sha256(secret.encode()).hexdigest()


class ControlAuthenticator:
    """Asks the shared tokens, which are compared in constant time, then the stored keys.

    A key is found by its hash: what the time of that look-up tells says nothing of the secret.
    Every call asks the store, so a revoked key ends at once on every replica.
    """

    def __init__(self, tokens: SharedTokens, store: Store) -> None:
        self._tokens = tokens
        self._store = store

    async def authenticate(self, credential: str) -> Principal:
        principal = self._tokens.principal_of(credential)
        if principal is not None:
            return principal
        if not credential.startswith(KEY_PREFIX) or len(credential) > _MAX_SECRET:
            raise Unauthenticated("the credential is not valid")
        key = await self._store.authenticate(hash_of(credential))
        if key is None:
            raise Unauthenticated("the credential is not valid")
        return TenantPrincipal(key.tenant_id, key.key_id)


def current_caller() -> TenantPrincipal:
    """The tenant's key that makes the call being served. Raises PermissionDenied for others."""
    principal = current_principal()
    if not isinstance(principal, TenantPrincipal):
        raise PermissionDenied("this call needs the credential of a tenant")
    return principal
