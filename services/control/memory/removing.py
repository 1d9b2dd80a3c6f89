"""Updates and deletes: what takes something away, from Postgres and from every worker.

    transaction   text and embedding go, the version and the KV epoch rise, what depended on it is
                  dropped, and the jobs are queued that encode again and that ask each holder
    forget        every worker that has held the user is asked at once, for `wait_s` at most
    acknowledge   what they answered goes into the receipt; the queued jobs ask the others

An update has no receipt. A worker that did not answer forgets the old revision when it next brings
its copy of the user up to date, which it must before it serves or encodes the user again.
"""

from __future__ import annotations

from collections.abc import Mapping

from inferscale_core.ids import TenantId, WorkerId
from inferscale_core.memory.changes import DeletedFact, DeletedTurns, UpdatedFact
from inferscale_core.memory.deletion import DeletionReceipt
from inferscale_core.rpc.identity import TenantPrincipal
from inferscale_core.store import Embedding, RequestOutcome, Store, TenantTransaction
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import span
from services.control.encoding.forgetting import Forgetter
from services.control.memory.answers import Deleted, RemovedTurns, Updated
from services.control.memory.commands import DeleteMemory, DeleteTurns, UpdateMemory
from services.control.memory.lengths import Destination, Stated
from services.control.memory.preparation import FactPreparation
from services.control.memory.reading import with_statuses
from services.control.worker_messages import Forgotten, Purge
from services.control.workers import UserAt

UPDATE = "update_memory"
DELETE = "delete_memory"
DELETE_TURNS = "delete_turns"

FORGET_AGAIN_S = 1.0
"""How long after the wait is over a queued job asks a holder that has not acknowledged."""

_log = get_logger(__name__)


class RemoveUseCases:
    def __init__(
        self,
        store: Store,
        preparation: FactPreparation,
        forgetter: Forgetter,
        *,
        wait_s: float,
    ) -> None:
        self._store = store
        self._preparation = preparation
        self._forgetter = forgetter
        self._wait_s = wait_s

    async def update(self, caller: TenantPrincipal, command: UpdateMemory) -> Updated:
        """Raises InvalidInput, NotFound, RevisionConflict or AlreadyDeleted (a replay)."""
        with span(names.UPDATE_MEMORY, {names.FACT_ID: command.fact_id}):
            async with self._store.transaction(caller.tenant_id) as tx:
                outcome = await tx.requests.find(command.request_id, UPDATE, command.content)
                if outcome is not None:
                    return await _replayed_update(tx, command, outcome)
                models = (await tx.tenants.get()).models
            vector = await self._preparation.vector(
                Stated("text", command.statement),
                Destination(caller.tenant_id, command.user_id, models),
            )
            async with self._store.transaction(caller.tenant_id) as tx:
                outcome = await tx.requests.claim(command.request_id, UPDATE, command.content)
                if outcome is not None:
                    return await _replayed_update(tx, command, outcome)
                updated = await _update(tx, caller, command, vector)
                [memory] = await with_statuses(tx, command.user_id, [updated.fact])
                holders = await tx.holders.list(command.user_id)
            user = UserAt(caller.tenant_id, command.user_id, updated.state)
            what = Forgotten(fact_ids=(command.fact_id,), dependants=updated.dependants)
            await self._forgetter.forget_everywhere(user, holders, what, wait_s=self._wait_s)
            _log.info("memory.updated", fact_id=command.fact_id, revision=updated.fact.revision)
            return Updated(memory, updated.state.memory_version, len(updated.dependants))

    async def delete(self, caller: TenantPrincipal, command: DeleteMemory) -> Deleted:
        """Returns when every holder has acknowledged or `wait_s` have passed. Raises NotFound."""
        with span(names.DELETE_MEMORY, {names.FACT_ID: command.fact_id}):
            async with self._store.transaction(caller.tenant_id) as tx:
                outcome = await tx.requests.claim(command.request_id, DELETE, command.content)
                if outcome is not None:
                    assert outcome.receipt_id is not None, "every delete writes a receipt"
                    receipt = await tx.deletions.get(command.user_id, outcome.receipt_id)
                    return Deleted(receipt, outcome.memory_version)
                deleted, holders = await self._delete(tx, caller, command)
            user = UserAt(caller.tenant_id, command.user_id, deleted.state)
            purges = await self._forgetter.forget_everywhere(
                user, holders, _forgotten(deleted), wait_s=self._wait_s
            )
            receipt = await self._acknowledge(caller.tenant_id, deleted.receipt, purges)
            _log.info("memory.deleted", fact_id=command.fact_id, receipt_id=receipt.receipt_id)
            return Deleted(receipt, deleted.state.memory_version)

    async def delete_turns(self, caller: TenantPrincipal, command: DeleteTurns) -> RemovedTurns:
        """Raises NotFound for an unknown conversation or turn."""
        async with self._store.transaction(caller.tenant_id) as tx:
            outcome = await tx.requests.claim(command.request_id, DELETE_TURNS, command.content)
            if outcome is not None:
                return RemovedTurns(
                    outcome.num_removed, outcome.num_dependants, outcome.memory_version
                )
            deleted = await _delete_turns(tx, caller, command)
            holders = await tx.holders.list(command.user_id)
        user = UserAt(caller.tenant_id, command.user_id, deleted.state)
        what = Forgotten(dependants=deleted.dependants, turn_ids=deleted.turn_ids)
        await self._forgetter.forget_everywhere(user, holders, what, wait_s=self._wait_s)
        return RemovedTurns(
            len(deleted.turn_ids), len(deleted.dependants), deleted.state.memory_version
        )

    async def _delete(
        self, tx: TenantTransaction, caller: TenantPrincipal, command: DeleteMemory
    ) -> tuple[DeletedFact, list[WorkerId]]:
        deleted = await tx.facts.delete(
            command.user_id, command.fact_id, purge_sources=command.purge_sources
        )
        holders = await tx.holders.list(command.user_id)
        await tx.audit.record(
            caller.key_id,
            DELETE,
            user_id=command.user_id,
            request_id=command.request_id,
            ids={"fact": [command.fact_id], "turn": deleted.purged_turn_ids},
        )
        await tx.queue_encoding(command.user_id)
        for worker_id in holders:
            await tx.queue_forget(
                command.user_id,
                deleted.receipt.receipt_id,
                worker_id,
                delay_s=self._wait_s + FORGET_AGAIN_S,
            )
        await tx.requests.complete(
            command.request_id,
            RequestOutcome(deleted.state.memory_version, receipt_id=deleted.receipt.receipt_id),
        )
        return deleted, holders

    async def _acknowledge(
        self,
        tenant_id: TenantId,
        receipt: DeletionReceipt,
        purges: Mapping[WorkerId, Purge],
    ) -> DeletionReceipt:
        """The receipt as it is after these answers."""
        if not purges:
            return receipt
        async with self._store.transaction(tenant_id) as tx:
            for worker_id, purge in purges.items():
                await tx.deletions.acknowledge(
                    receipt.receipt_id, worker_id, purge.dropped, pending=purge.pending
                )
            return await tx.deletions.get(receipt.user_id, receipt.receipt_id)


async def _update(
    tx: TenantTransaction, caller: TenantPrincipal, command: UpdateMemory, vector: Embedding
) -> UpdatedFact:
    updated = await tx.facts.update(
        command.user_id,
        command.fact_id,
        text=command.statement.text,
        occurred_at=command.statement.occurred_at,
        embedding=vector,
        expected_revision=command.expected_revision,
    )
    await tx.audit.record(
        caller.key_id,
        UPDATE,
        user_id=command.user_id,
        request_id=command.request_id,
        ids={"fact": [command.fact_id]},
    )
    await tx.queue_encoding(command.user_id)
    await tx.requests.complete(
        command.request_id,
        RequestOutcome(
            updated.state.memory_version,
            fact_ids=(command.fact_id,),
            num_dependants=len(updated.dependants),
        ),
    )
    return updated


async def _delete_turns(
    tx: TenantTransaction, caller: TenantPrincipal, command: DeleteTurns
) -> DeletedTurns:
    deleted = await tx.turns.delete(command.user_id, command.conversation_id, command.turn_ids)
    await tx.audit.record(
        caller.key_id,
        DELETE_TURNS,
        user_id=command.user_id,
        request_id=command.request_id,
        ids={"turn": deleted.turn_ids},
    )
    await tx.queue_encoding(command.user_id)
    await tx.requests.complete(
        command.request_id,
        RequestOutcome(
            deleted.state.memory_version,
            num_removed=len(deleted.turn_ids),
            num_dependants=len(deleted.dependants),
        ),
    )
    return deleted


async def _replayed_update(
    tx: TenantTransaction, command: UpdateMemory, outcome: RequestOutcome
) -> Updated:
    fact = await tx.facts.replayed(command.user_id, command.fact_id)
    [memory] = await with_statuses(tx, command.user_id, [fact])
    return Updated(memory, outcome.memory_version, outcome.num_dependants)


def _forgotten(deleted: DeletedFact) -> Forgotten:
    return Forgotten(
        fact_ids=(deleted.receipt.fact_id,),
        dependants=deleted.receipt.dependant_fact_ids,
        turn_ids=deleted.purged_turn_ids,
    )
