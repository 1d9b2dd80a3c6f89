"""The facts of a user that are nearest to a vector, by cosine distance."""

from __future__ import annotations

from collections.abc import Sequence

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import CTE, ColumnElement, Float, cast, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import TenantId, UserId
from inferscale_core.store.checks import Embedding
from inferscale_core.store.rows import FactEmbeddingRow, FactRow

EXACT_UP_TO = 50_000
"""Facts of one user up to which every distance is computed. At 384 dimensions Postgres does about
a million a second on one core. Measure again when the default quota of a user (10,000) grows."""

MAX_INDEXED_VECTOR = 2_000
"""Dimensions up to which pgvector indexes float32; above, the index is on half precision."""

_CANDIDATES = 8
"""Facts that the index proposes for each one wanted, before they are ordered exactly."""


async def nearest_exactly(
    session: AsyncSession, tenant_id: TenantId, user_id: UserId, query: Embedding, *, limit: int
) -> Sequence[tuple[FactRow, float]]:
    """The materialized part keeps the planner from answering out of the approximate index."""
    candidates = (
        select(FactEmbeddingRow.fact_id, _distance(query).label("distance"))
        .where(FactEmbeddingRow.tenant_id == tenant_id, FactEmbeddingRow.user_id == user_id)
        .cte("candidates")
        .prefix_with("MATERIALIZED")
    )
    return await _ordered(session, tenant_id, candidates, limit)


async def nearest_by_index(
    session: AsyncSession, tenant_id: TenantId, user_id: UserId, query: Embedding, *, limit: int
) -> Sequence[tuple[FactRow, float]]:
    """The index goes on scanning until enough of this user's facts were found."""
    await session.execute(text("SET LOCAL hnsw.iterative_scan = 'strict_order'"))
    candidates = (
        select(FactEmbeddingRow.fact_id, _distance(query).label("distance"))
        .where(FactEmbeddingRow.tenant_id == tenant_id, FactEmbeddingRow.user_id == user_id)
        .order_by(_indexed_distance(query))
        .limit(limit * _CANDIDATES)
        .cte("candidates")
        .prefix_with("MATERIALIZED")
    )
    return await _ordered(session, tenant_id, candidates, limit)


async def _ordered(
    session: AsyncSession, tenant_id: TenantId, candidates: CTE, limit: int
) -> Sequence[tuple[FactRow, float]]:
    best = (
        select(candidates.c.fact_id, candidates.c.distance)
        .order_by(candidates.c.distance, candidates.c.fact_id)
        .limit(limit)
        .subquery("best")
    )
    rows = await session.execute(
        select(FactRow, best.c.distance)
        .join(best, best.c.fact_id == FactRow.fact_id)
        .where(FactRow.tenant_id == tenant_id, FactRow.is_live)
        .order_by(best.c.distance, best.c.fact_id)
    )
    return [(row, 1.0 - distance) for row, distance in rows.tuples()]


def _distance(query: Embedding) -> ColumnElement[float]:
    return FactEmbeddingRow.embedding.op("<=>", return_type=Float)(query)


def _indexed_distance(query: Embedding) -> ColumnElement[float]:
    """The very expression that the index is built on."""
    if len(query) <= MAX_INDEXED_VECTOR:
        return _distance(query)
    half = HALFVEC(len(query))
    return cast(FactEmbeddingRow.embedding, half).op("<=>", return_type=Float)(cast(query, half))
