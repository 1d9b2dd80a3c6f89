"""Adding facts: one, or a batch whose items stand or fall one by one.

    find      a request id that was used gives its first answer again, before any work
    prepare   embed it in the pool's threads, and have a long one counted, with no connection held
    claim     the transaction: request id, fact, encode states, audit entry, jobs; all or nothing

Two requests with one id may both prepare; the second then waits at `claim` for the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from inferscale_core.errors import AlreadyDeleted, InferScaleError, InvalidInput, NotFound
from inferscale_core.ids import FactId, UserId
from inferscale_core.memory.changes import AddedFact
from inferscale_core.memory.facts import NewFact
from inferscale_core.rpc.identity import TenantPrincipal
from inferscale_core.store import (
    Embedding,
    RequestOutcome,
    Store,
    TenantTransaction,
)
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import span
from services.control.memory.answers import (
    Added,
    BatchAdded,
    BatchItem,
    Memory,
    Refusal,
    refusal_of,
)
from services.control.memory.commands import AddMemory, BatchAddMemories
from services.control.memory.lengths import Destination, Stated
from services.control.memory.preparation import FactPreparation
from services.control.memory.reading import with_statuses

ADD = "add_memory"
BATCH_ADD = "batch_add_memories"

_log = get_logger(__name__)


class AddUseCases:
    def __init__(self, store: Store, preparation: FactPreparation) -> None:
        self._store = store
        self._preparation = preparation

    async def add(self, caller: TenantPrincipal, command: AddMemory) -> Added:
        """Raises InvalidInput, NotFound (a source turn), QuotaExceeded or AlreadyDeleted."""
        with span(names.ADD_MEMORY, {names.USER_ID: command.user_id}):
            async with self._store.transaction(caller.tenant_id) as tx:
                outcome = await tx.requests.find(command.request_id, ADD, command.content)
                if outcome is not None:
                    return await _replayed(tx, command, outcome)
                models = (await tx.tenants.get()).models
            vector = await self._preparation.vector(
                Stated("memory.text", command.fact),
                Destination(caller.tenant_id, command.user_id, models),
            )
            return await self._store_fact(caller, command, vector)

    async def add_batch(self, caller: TenantPrincipal, command: BatchAddMemories) -> BatchAdded:
        """Items that cannot be stored are refused in their place; the others are stored."""
        with span(names.ADD_MEMORY, {names.FACT_COUNT: len(command.items)}):
            async with self._store.transaction(caller.tenant_id) as tx:
                outcome = await tx.requests.find(command.request_id, BATCH_ADD, command.content)
                if outcome is not None:
                    return await _replayed_batch(tx, command, outcome)
                models = (await tx.tenants.get()).models
            destination = Destination(caller.tenant_id, command.user_id, models)
            prepared = await self._prepare(command, destination)
            return await self._store_batch(caller, command, prepared)

    async def _store_fact(
        self, caller: TenantPrincipal, command: AddMemory, vector: Embedding
    ) -> Added:
        async with self._store.transaction(caller.tenant_id) as tx:
            outcome = await tx.requests.claim(command.request_id, ADD, command.content)
            if outcome is not None:
                return await _replayed(tx, command, outcome)
            added = await tx.facts.add(command.user_id, command.fact, vector)
            state = await tx.users.state(command.user_id)
            if not added.already_existed:
                await tx.audit.record(
                    caller.key_id,
                    ADD,
                    user_id=command.user_id,
                    request_id=command.request_id,
                    ids={"fact": [added.fact.fact_id]},
                )
                await tx.queue_encoding(command.user_id)
            await tx.requests.complete(
                command.request_id,
                RequestOutcome(state.memory_version, fact_ids=(added.fact.fact_id,)),
            )
            [memory] = await with_statuses(tx, command.user_id, [added.fact])
        _log.info("memory.added", fact_id=added.fact.fact_id, existed=added.already_existed)
        return Added(memory, state.memory_version, added.already_existed)

    async def _prepare(
        self, command: BatchAddMemories, destination: Destination
    ) -> list[tuple[NewFact, Embedding] | Refusal]:
        """In the order of the items: what can be stored, or why it cannot."""
        stated = [
            Stated(f"memories[{index}].text", item)
            for index, item in enumerate(command.items)
            if isinstance(item, NewFact)
        ]
        vectors = iter(await self._preparation.vectors(stated, destination))
        prepared: list[tuple[NewFact, Embedding] | Refusal] = []
        for item in command.items:
            outcome = next(vectors) if isinstance(item, NewFact) else item
            if isinstance(outcome, InvalidInput):
                prepared.append(refusal_of(outcome))
            else:
                assert isinstance(item, NewFact), "only facts have vectors"
                prepared.append((item, outcome))
        return prepared

    async def _store_batch(
        self,
        caller: TenantPrincipal,
        command: BatchAddMemories,
        prepared: Sequence[tuple[NewFact, Embedding] | Refusal],
    ) -> BatchAdded:
        storable = [item for item in prepared if not isinstance(item, Refusal)]
        async with self._store.transaction(caller.tenant_id) as tx:
            outcome = await tx.requests.claim(command.request_id, BATCH_ADD, command.content)
            if outcome is not None:
                return await _replayed_batch(tx, command, outcome)
            stored = iter(await tx.facts.add_many(command.user_id, storable) if storable else ())
            results = [item if isinstance(item, Refusal) else next(stored) for item in prepared]
            state = await tx.users.state(command.user_id)
            await _follow_up(tx, caller, command, results)
            items = await _batch_items(tx, command.user_id, results)
            await tx.requests.complete(
                command.request_id, _batch_outcome(state.memory_version, items)
            )
        _log.info("memory.batch_added", num_items=len(items), version=state.memory_version)
        return BatchAdded(tuple(items), state.memory_version)


async def _follow_up(
    tx: TenantTransaction,
    caller: TenantPrincipal,
    command: BatchAddMemories,
    results: Sequence[AddedFact | InferScaleError | Refusal],
) -> None:
    """What a batch that has stored anything new owes: an audit entry and jobs."""
    new = [
        result.fact.fact_id
        for result in results
        if isinstance(result, AddedFact) and not result.already_existed
    ]
    if new:
        await tx.audit.record(
            caller.key_id,
            BATCH_ADD,
            user_id=command.user_id,
            request_id=command.request_id,
            ids={"fact": new},
        )
        await tx.queue_encoding(command.user_id)


async def _replayed(tx: TenantTransaction, command: AddMemory, outcome: RequestOutcome) -> Added:
    [fact_id] = outcome.fact_ids
    assert fact_id is not None, "an add that was refused wrote no outcome"
    fact = await tx.facts.replayed(command.user_id, fact_id)
    [memory] = await with_statuses(tx, command.user_id, [fact])
    return Added(memory, outcome.memory_version, already_existed=True)


async def _replayed_batch(
    tx: TenantTransaction, command: BatchAddMemories, outcome: RequestOutcome
) -> BatchAdded:
    results: list[AddedFact | InferScaleError | Refusal] = []
    for index, (fact_id, code) in enumerate(
        zip(outcome.fact_ids, outcome.error_codes, strict=True)
    ):
        problem = command.items[index]
        if fact_id is not None:
            results.append(await _replayed_item(tx, command.user_id, fact_id))
        elif isinstance(problem, InvalidInput):
            results.append(refusal_of(problem))
        else:
            results.append(Refusal(code, f"memories[{index}]", "refused by the first request"))
    return BatchAdded(
        tuple(await _batch_items(tx, command.user_id, results)), outcome.memory_version
    )


async def _replayed_item(
    tx: TenantTransaction, user_id: UserId, fact_id: FactId
) -> AddedFact | InferScaleError:
    try:
        return AddedFact(await tx.facts.replayed(user_id, fact_id), already_existed=True)
    except (AlreadyDeleted, NotFound) as error:
        return error


async def _batch_items(
    tx: TenantTransaction,
    user_id: UserId,
    results: Sequence[AddedFact | InferScaleError | Refusal],
) -> list[BatchItem]:
    facts = [result.fact for result in results if isinstance(result, AddedFact)]
    memories = iter(await with_statuses(tx, user_id, facts))
    items = []
    for index, result in enumerate(results):
        if isinstance(result, AddedFact):
            items.append(BatchItem(next(memories), result.already_existed))
        elif isinstance(result, Refusal):
            items.append(BatchItem(result))
        else:
            items.append(BatchItem(refusal_of(result, f"memories[{index}]")))
    return items


def _batch_outcome(memory_version: int, items: Sequence[BatchItem]) -> RequestOutcome:
    outcomes = [item.outcome for item in items]
    return RequestOutcome(
        memory_version,
        fact_ids=tuple(o.fact.fact_id if isinstance(o, Memory) else None for o in outcomes),
        error_codes=tuple(o.code if isinstance(o, Refusal) else "" for o in outcomes),
    )
