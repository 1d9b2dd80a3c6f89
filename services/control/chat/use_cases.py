"""A chat: which worker serves it, at which version of the user's memory.

The version is read when the chat starts, after every write that was acknowledged before. The worker
may not answer below it, so no chat sees what an earlier update or delete has replaced.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from inferscale_core.errors import InvalidInput, Unavailable
from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.tenants import Tenant
from inferscale_core.memory.workers import Worker
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, worker_pb2
from inferscale_core.store import Store
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import annotate
from services.control.background import Background
from services.control.chat.convert import Chat
from services.control.workers import UserAt, WorkerChannels, WorkerDirectory

MAX_WORKERS_TRIED = 3
"""Workers asked in turn when one does not answer although its lease still holds."""

_log = get_logger(__name__)


class ChatUseCases:
    def __init__(
        self,
        store: Store,
        directory: WorkerDirectory,
        channels: WorkerChannels,
        background: Background,
    ) -> None:
        self._store = store
        self._directory = directory
        self._channels = channels
        self._background = background

    async def chat(
        self, tenant_id: TenantId, chat: Chat, *, limit_s: float | None
    ) -> AsyncGenerator[chat_pb2.ChatResponse, None]:
        """The worker's events as they come. Leaving the iterator ends the worker's request.

        A worker that cannot be reached is passed over for the user's next one, as long as nothing
        has been streamed. Raises Unavailable when none is left.
        """
        async with self._store.transaction(tenant_id) as tx:
            tenant = await tx.tenants.get()
        model = _model_of(tenant, chat.model)
        unreachable: set[WorkerId] = set()
        while True:
            owners = await self._directory.owners(
                tenant_id, chat.user_id, model, avoiding=unreachable
            )
            worker = await self._serving(tenant_id, chat.user_id, owners)
            user = await self._hold(tenant_id, chat, worker.worker_id)
            annotate({names.WORKER_ID: worker.worker_id, names.USER_ID: chat.user_id})
            events = self._channels.client(worker).generate(chat.to_worker(user), limit_s=limit_s)
            started = False
            try:
                async for event in events:
                    started = True
                    self._encode_later(tenant_id, chat.user_id, event)
                    yield event.response
                return
            except Unavailable as exc:
                unreachable.add(worker.worker_id)
                if started or len(unreachable) == MAX_WORKERS_TRIED:
                    raise
                _log.warning("chat.worker_unreachable", exc=exc, worker_id=worker.worker_id)
            finally:
                await events.aclose()

    async def _serving(
        self, tenant_id: TenantId, user_id: UserId, owners: Sequence[Worker]
    ) -> Worker:
        """The first owner. While the model's recipe changes: the one with the recipe before, until
        every fact of the user is encoded with the present one, which is then asked for."""
        if len(owners) == 1:
            return owners[0]
        present, before = owners
        async with self._store.transaction(tenant_id) as tx:
            if await tx.encodings.is_settled(user_id, present.model_revision, present.recipe_hash):
                return present
        self._background.start(self._queue_encoding(tenant_id, user_id))
        return before

    async def _hold(self, tenant_id: TenantId, chat: Chat, worker_id: WorkerId) -> UserAt:
        """Note that the worker may hold the user, before it is asked; read what it must see."""
        async with self._store.transaction(tenant_id) as tx:
            await tx.holders.add(chat.user_id, worker_id)
            state = await tx.users.state(chat.user_id)
        if chat.min_memory_version > state.memory_version:
            raise InvalidInput(
                "min_memory_version",
                f"{chat.min_memory_version} is above the user's version {state.memory_version}",
            )
        return UserAt(tenant_id, chat.user_id, state)

    def _encode_later(
        self, tenant_id: TenantId, user_id: UserId, event: worker_pb2.GenerateResponse
    ) -> None:
        """Facts that had to be prefilled are encoded for the next chat; this one does not wait."""
        if event.not_resident:
            self._background.start(self._queue_encoding(tenant_id, user_id))

    async def _queue_encoding(self, tenant_id: TenantId, user_id: UserId) -> None:
        async with self._store.transaction(tenant_id) as tx:
            await tx.queue_encoding(user_id)


def _model_of(tenant: Tenant, wanted: str) -> str:
    if not wanted:
        return tenant.models[0]
    if wanted not in tenant.models:
        raise InvalidInput(
            "model", f"{wanted[:80]!r} is not one of this tenant's: {', '.join(tenant.models)}"
        )
    return wanted
