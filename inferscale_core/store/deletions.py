"""Receipts of deletes: what was removed where, and which worker has still to answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.errors import NotFound
from inferscale_core.ids import FactId, TenantId, TurnId, UserId, WorkerId
from inferscale_core.memory.deletion import (
    WORKER_HOLDERS,
    DeletionReceipt,
    Holder,
    PurgeState,
    ReceiptLine,
)
from inferscale_core.store.holders import HolderRepository
from inferscale_core.store.identifiers import new_id
from inferscale_core.store.rows import ReceiptLineRow, ReceiptRow


class DeletionRepository:
    """A line is pending until its worker acknowledges, restarts empty, or is removed for good."""

    def __init__(
        self, session: AsyncSession, tenant_id: TenantId, holders: HolderRepository
    ) -> None:
        self._session = session
        self._tenant_id = tenant_id
        self._holders = holders

    async def create(
        self,
        user_id: UserId,
        fact_id: FactId,
        *,
        num_rows: int,
        num_embeddings: int,
        source_turn_ids: Sequence[TurnId],
        dependants: Sequence[FactId],
    ) -> DeletionReceipt:
        """Postgres's own lines are purged; those of workers that have held the user are pending."""
        receipt_id = new_id()
        await self._session.execute(
            insert(ReceiptRow).values(
                tenant_id=self._tenant_id,
                receipt_id=receipt_id,
                user_id=user_id,
                fact_id=fact_id,
                deleted_at=func.now(),
                source_turn_ids=list(source_turn_ids),
                dependant_fact_ids=list(dependants),
            )
        )
        own = {
            Holder.ROW: num_rows,
            Holder.EMBEDDING: num_embeddings,
            Holder.DEPENDANTS: len(dependants),
        }
        lines = [("", holder, PurgeState.PURGED, count) for holder, count in own.items()]
        for worker_id in await self._holders.list(user_id):
            lines += [(worker_id, holder, PurgeState.PENDING, 0) for holder in WORKER_HOLDERS]
        await self._session.execute(
            insert(ReceiptLineRow).values(
                [
                    {
                        "tenant_id": self._tenant_id,
                        "receipt_id": receipt_id,
                        "worker_id": worker_id,
                        "holder": holder.value,
                        "state": state.value,
                        "count": count,
                        "updated_at": func.now(),
                    }
                    for worker_id, holder, state, count in lines
                ]
            )
        )
        return await self.get(user_id, receipt_id)

    async def get(self, user_id: UserId, receipt_id: str) -> DeletionReceipt:
        """Raises NotFound."""
        row = await self._session.scalar(
            select(ReceiptRow).where(
                ReceiptRow.tenant_id == self._tenant_id,
                ReceiptRow.receipt_id == receipt_id,
                ReceiptRow.user_id == user_id,
            )
        )
        if row is None:
            raise NotFound("receipt", receipt_id)
        lines = await self._session.scalars(
            select(ReceiptLineRow)
            .where(
                ReceiptLineRow.tenant_id == self._tenant_id,
                ReceiptLineRow.receipt_id == receipt_id,
            )
            .order_by(ReceiptLineRow.worker_id, ReceiptLineRow.holder)
        )
        return DeletionReceipt(
            receipt_id=row.receipt_id,
            user_id=UserId(row.user_id),
            fact_id=FactId(row.fact_id),
            deleted_at=row.deleted_at,
            lines=tuple(_line(line) for line in lines),
            source_turn_ids=tuple(TurnId(turn_id) for turn_id in row.source_turn_ids),
            dependant_fact_ids=tuple(FactId(fact_id) for fact_id in row.dependant_fact_ids),
        )

    async def acknowledge(
        self,
        receipt_id: str,
        worker_id: WorkerId,
        purged: Mapping[Holder, int],
        *,
        pending: Collection[Holder] = (),
    ) -> None:
        """Writes what the worker removed. Lines of `pending` holders stay pending.

        Lines of the worker that `purged` does not name are purged with their count as it was.
        """
        for holder in WORKER_HOLDERS:
            state = PurgeState.PENDING if holder in pending else PurgeState.PURGED
            await self._session.execute(
                update(ReceiptLineRow)
                .where(
                    ReceiptLineRow.tenant_id == self._tenant_id,
                    ReceiptLineRow.receipt_id == receipt_id,
                    ReceiptLineRow.worker_id == worker_id,
                    ReceiptLineRow.holder == holder.value,
                )
                .values(
                    state=state.value,
                    count=ReceiptLineRow.count + purged.get(holder, 0),
                    updated_at=func.now(),
                )
            )


def _line(row: ReceiptLineRow) -> ReceiptLine:
    return ReceiptLine(
        holder=Holder(row.holder),
        worker_id=WorkerId(row.worker_id) if row.worker_id else None,
        state=PurgeState(row.state),
        count=row.count,
        updated_at=row.updated_at,
    )
