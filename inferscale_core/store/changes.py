"""What changed for a user after a version, in pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import LargeBinary, Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import FactId, TenantId, TurnId, UserId
from inferscale_core.memory.changes import ChangePage, EmbeddedFact
from inferscale_core.store.facts import fact_from_row
from inferscale_core.store.removals import FACT
from inferscale_core.store.rows import FactEmbeddingRow, FactRow, RemovalRow, TurnRow
from inferscale_core.store.turns import turn_from_row
from inferscale_core.store.users import UserRepository

_VECTOR_HEADER = 4
"""Bytes before the components in pgvector's binary form: dimension and a reserved field."""


class ChangeReader:
    """Reads a page from one snapshot: what it says is the user's memory at `state`, up to
    `reached_version`.

    Pages may come from different snapshots. A fact that changes in between moves to a higher
    version and is met again on a later page; one that is removed leaves an id at a higher version.
    So whoever applies all pages up to the `last` has exactly that page's state.
    """

    def __init__(self, session: AsyncSession, tenant_id: TenantId, users: UserRepository) -> None:
        self._session = session
        self._tenant_id = tenant_id
        self._users = users

    async def page(self, user_id: UserId, after_version: int, *, limit: int = 500) -> ChangePage:
        """At most `limit` facts, turns and removals each. Read it in a `Store.snapshot`."""
        state = await self._users.state(user_id)
        facts = await self._facts(user_id, after_version, limit)
        turns = list(await self._session.scalars(self._turns(user_id, after_version, limit)))
        removals = list(await self._session.scalars(self._removals(user_id, after_version, limit)))
        reached = state.memory_version
        for versions in (
            [row.memory_version for row, _ in facts],
            [row.memory_version for row in turns],
            [row.memory_version for row in removals],
        ):
            if len(versions) == limit:
                reached = min(reached, versions[-1])
        gone = [row for row in removals if row.memory_version <= reached]
        return ChangePage(
            state=state,
            reached_version=reached,
            last=reached == state.memory_version,
            facts=tuple(
                EmbeddedFact(fact_from_row(row), _little_endian(embedding))
                for row, embedding in facts
                if row.memory_version <= reached
            ),
            turns=tuple(turn_from_row(row) for row in turns if row.memory_version <= reached),
            removed_fact_ids=tuple(FactId(row.item_id) for row in gone if row.kind == FACT),
            removed_turn_ids=tuple(TurnId(row.item_id) for row in gone if row.kind != FACT),
        )

    async def _facts(
        self, user_id: UserId, after_version: int, limit: int
    ) -> Sequence[tuple[FactRow, bytes]]:
        binary = func.vector_send(FactEmbeddingRow.embedding, type_=LargeBinary)
        rows = await self._session.execute(
            select(FactRow, binary)
            .join(
                FactEmbeddingRow,
                (FactEmbeddingRow.tenant_id == FactRow.tenant_id)
                & (FactEmbeddingRow.fact_id == FactRow.fact_id),
            )
            .where(
                FactRow.tenant_id == self._tenant_id,
                FactRow.user_id == user_id,
                FactRow.is_live,
                FactRow.memory_version > after_version,
            )
            .order_by(FactRow.memory_version)
            .limit(limit)
        )
        return [(row, embedding) for row, embedding in rows.tuples()]

    def _turns(self, user_id: UserId, after_version: int, limit: int) -> Select[TurnRow]:
        return (
            select(TurnRow)
            .where(
                TurnRow.tenant_id == self._tenant_id,
                TurnRow.user_id == user_id,
                TurnRow.memory_version > after_version,
            )
            .order_by(TurnRow.memory_version)
            .limit(limit)
        )

    def _removals(self, user_id: UserId, after_version: int, limit: int) -> Select[RemovalRow]:
        return (
            select(RemovalRow)
            .where(
                RemovalRow.tenant_id == self._tenant_id,
                RemovalRow.user_id == user_id,
                RemovalRow.memory_version > after_version,
            )
            .order_by(RemovalRow.memory_version)
            .limit(limit)
        )


def _little_endian(sent: bytes) -> bytes:
    return np.frombuffer(sent, dtype=">f4", offset=_VECTOR_HEADER).astype("<f4").tobytes()
