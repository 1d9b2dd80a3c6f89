"""What workers ask: what has changed for a user, and a place in routing for themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from inferscale_core.errors import Incompatible
from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.changes import ChangePage
from inferscale_core.memory.routing import owner_of
from inferscale_core.memory.workers import EmbedderIdentity, Joined, Worker
from inferscale_core.store import Store, SystemTransaction
from inferscale_core.telemetry.logs import get_logger
from services.control.workers import WorkerDirectory

MAX_USERS_WARMED = 100
"""Users whom a worker that has started empty is told to encode at once. The others follow with
their first chat, which is served as text and queues them. A user takes 1 to 4 s on an idle GPU, so
this is a few minutes of work; more would hold up users who are chatting now."""

MAX_USERS_SCANNED = 10_000
"""Users looked at to find those whom the worker owns: enough for a hundred workers of a model."""

PAGE_ITEMS = 500
"""Facts, turns and removals of one page. 500 facts with embeddings are about 1 MB."""

_log = get_logger(__name__)


class SyncUseCases:
    def __init__(
        self, store: Store, directory: WorkerDirectory, embedder: EmbedderIdentity
    ) -> None:
        self._store = store
        self._directory = directory
        self._embedder = embedder

    async def changes(
        self,
        tenant_id: TenantId,
        user_id: UserId,
        after_version: int,
        *,
        with_disk_key: bool = False,
    ) -> AsyncGenerator[ChangePage, None]:
        """Pages up to the one that is last. No connection is held while one is being sent."""
        while True:
            async with self._store.snapshot(tenant_id) as tx:
                page = await tx.changes.page(user_id, after_version, limit=PAGE_ITEMS)
            if page.last and with_disk_key:
                page = await self._with_disk_key(tenant_id, user_id, page)
            yield page
            if page.last:
                return
            after_version = page.reached_version

    async def join(self, worker: Worker, *, renewal: bool) -> None:
        """Registers the worker or renews its lease. `renewal`: this instance has joined before.

        Raises Incompatible with both identities when its vectors could not be compared with ours,
        and WorkerIdTaken when its id belongs to another instance.
        """
        if worker.embedder != self._embedder:
            raise Incompatible(
                f"worker {worker.worker_id!r} embeds with {_described(worker.embedder)},"
                f" control with {_described(self._embedder)}"
            )
        async with self._store.system() as tx:
            joined = await tx.workers.join(worker, lease_s=self._directory.lease_s, renewal=renewal)
            if joined is not Joined.RENEWED and not worker.draining:
                await tx.wake_encoding(worker.model)
            if joined is Joined.NEW and not worker.draining:
                for tenant_id, user_id in await self._owned_users(tx, worker):
                    await tx.queue_encoding(tenant_id, user_id, worker.model)
        self._directory.refresh_soon()
        if joined is not Joined.RENEWED:
            _log.info(
                "worker.joined",
                worker_id=worker.worker_id,
                model=worker.model,
                is_new=joined is Joined.NEW,
            )

    async def remove(self, worker_id: WorkerId) -> None:
        """For good: receipts wait for it no longer. Raises NotFound."""
        async with self._store.system() as tx:
            await tx.workers.remove(worker_id)
        self._directory.refresh_soon()
        _log.warning("worker.removed", worker_id=worker_id)

    async def _with_disk_key(
        self, tenant_id: TenantId, user_id: UserId, page: ChangePage
    ) -> ChangePage:
        """The page with the key of its own epoch.

        When a delete came between the two, the page is not the last any more: with the new key
        a worker would seal what only the old facts should have.
        """
        async with self._store.transaction(tenant_id) as tx:
            disk_key = await tx.disk_keys.current(user_id)
        if disk_key is not None and disk_key.kv_epoch != page.state.kv_epoch:
            return replace(page, last=False)
        return replace(page, disk_key=disk_key)

    async def _owned_users(
        self, tx: SystemTransaction, worker: Worker
    ) -> list[tuple[TenantId, UserId]]:
        """The first of the users whom the worker serves, now that it is one of the live ones."""
        live = await tx.workers.live(self._directory.lease_s, worker.model)
        worker_ids = [
            other.worker_id
            for other in live
            if not other.draining and self._directory.serve_alike(other, worker)
        ]
        users = await tx.workers.users_of_model(worker.model, limit=MAX_USERS_SCANNED)
        owned = [user for user in users if owner_of(*user, worker_ids) == worker.worker_id]
        return owned[:MAX_USERS_WARMED]


def _described(identity: EmbedderIdentity) -> str:
    return f"{identity.embedder_id} revision {identity.revision} ({identity.dimension} dimensions)"
