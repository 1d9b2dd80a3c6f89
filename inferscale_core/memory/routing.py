"""Which worker owns a user: rendezvous hashing.

Every process that knows the same workers picks the same one, without talking. When a worker comes
or goes, only the users that it wins or held move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from inferscale_core.ids import TenantId, UserId, WorkerId


def owner_of(
    tenant_id: TenantId, user_id: UserId, worker_ids: Iterable[WorkerId]
) -> WorkerId | None:
    """The worker with the highest weight for this user. None when there is no worker."""
    return max(worker_ids, key=lambda w: (_weight(tenant_id, user_id, w), w), default=None)


def _weight(tenant_id: TenantId, user_id: UserId, worker_id: WorkerId) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    for part in (tenant_id, user_id, worker_id):
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(4, "little"))
        hasher.update(encoded)
    return hasher.digest()
