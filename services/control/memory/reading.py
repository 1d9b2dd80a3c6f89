"""Reading facts: one, by pages, by likeness to a query; and receipts of deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from inferscale_core.errors import InferScaleError, InvalidInput
from inferscale_core.ids import FactId, TenantId, UserId, WorkerId
from inferscale_core.memory.changes import UserState
from inferscale_core.memory.deletion import DeletionReceipt
from inferscale_core.memory.facts import Fact
from inferscale_core.memory.workers import Worker
from inferscale_core.store import Store, TenantTransaction
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import span
from services.control.memory.answers import Found, Memory, Page, Residency
from services.control.memory.commands import ListMemories, SearchMemories
from services.control.memory.preparation import FactPreparation
from services.control.workers import UserAt, WorkerChannels, WorkerDirectory

RESIDENCY_LIMIT_S = 1.0
"""A worker answers from its mirror in under a millisecond; one that is away is left out."""

_log = get_logger(__name__)


class ReadUseCases:
    def __init__(
        self,
        store: Store,
        preparation: FactPreparation,
        directory: WorkerDirectory,
        channels: WorkerChannels,
    ) -> None:
        self._store = store
        self._preparation = preparation
        self._directory = directory
        self._channels = channels

    async def get(self, tenant_id: TenantId, user_id: UserId, fact_id: FactId) -> Memory:
        """With where its chunks are held now, as far as the workers answer. Raises NotFound."""
        async with self._store.transaction(tenant_id) as tx:
            fact = await tx.facts.get(user_id, fact_id)
            [memory] = await with_statuses(tx, user_id, [fact])
            holders = set(await tx.holders.list(user_id))
        residency = await self._residency(tenant_id, fact, holders)
        return Memory(memory.fact, memory.statuses, residency)

    async def page(self, tenant_id: TenantId, command: ListMemories) -> Page:
        size = command.page_size
        async with self._store.transaction(tenant_id) as tx:
            facts = await tx.facts.page(
                command.user_id, after_version=command.after_version, limit=size + 1
            )
            state = await tx.users.state(command.user_id)
            memories = await with_statuses(tx, command.user_id, facts[:size])
        is_last = len(facts) <= size
        return Page(
            tuple(memories),
            None if is_last else memories[-1].fact.memory_version,
            state.memory_version,
        )

    async def search(self, tenant_id: TenantId, command: SearchMemories) -> Found:
        """Raises InvalidInput for a version that the user's memory has not reached."""
        with span(names.SEARCH_MEMORIES, {names.USER_ID: command.user_id}):
            vector = await self._preparation.query_vector(command.query)
            async with self._store.transaction(tenant_id) as tx:
                state = await tx.users.state(command.user_id)
                check_reached(command.min_memory_version, state)
                scored = await tx.facts.nearest(command.user_id, vector, limit=command.k)
                memories = await with_statuses(tx, command.user_id, [one.fact for one in scored])
        results = zip(memories, (one.score for one in scored), strict=True)
        return Found(tuple(results), state.memory_version)

    async def receipt(
        self, tenant_id: TenantId, user_id: UserId, receipt_id: str
    ) -> DeletionReceipt:
        """Raises NotFound."""
        async with self._store.transaction(tenant_id) as tx:
            return await tx.deletions.get(user_id, receipt_id)

    async def _residency(
        self, tenant_id: TenantId, fact: Fact, holders: set[WorkerId]
    ) -> tuple[Residency, ...]:
        user = UserAt(tenant_id, fact.user_id, UserState())
        workers = [w for w in await self._directory.live() if w.worker_id in holders]
        places = await asyncio.gather(*(self._places(worker, user, fact) for worker in workers))
        return tuple(place for of_worker in places for place in of_worker)

    async def _places(self, worker: Worker, user: UserAt, fact: Fact) -> list[Residency]:
        try:
            chunks = await self._channels.client(worker).chunks_of(user, limit_s=RESIDENCY_LIMIT_S)
        except InferScaleError as exc:
            _log.warning("residency.unknown", exc=exc, worker_id=worker.worker_id)
            return []
        return [
            Residency(worker.worker_id, worker.target, chunk.tier)
            for chunk in chunks
            if chunk.fact == fact.ref
        ]


async def with_statuses(
    tx: TenantTransaction, user_id: UserId, facts: Sequence[Fact]
) -> list[Memory]:
    statuses = await tx.encodings.statuses(user_id, [fact.fact_id for fact in facts])
    return [Memory(fact, statuses.get(fact.fact_id, ())) for fact in facts]


def check_reached(min_memory_version: int, state: UserState) -> None:
    """Every write is committed before its version is given out, so a higher one never was."""
    if min_memory_version > state.memory_version:
        raise InvalidInput(
            "min_memory_version",
            f"{min_memory_version} is above the user's version {state.memory_version}",
        )
