"""Encode states of one tenant's facts, and what each chunk saw."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.ids import FactId, ModelRevision, RecipeHash, TenantId, TurnId, UserId
from inferscale_core.memory.encoding import EncodeResult, EncodeState, EncodeStatus, EncodeTarget
from inferscale_core.memory.facts import FactRef
from inferscale_core.store.rows import (
    ChunkFactRow,
    ChunkTurnRow,
    EncodingRow,
    FactRow,
    TurnRow,
    UserRow,
)

# One state for each worker target of each of the tenant's models; a model that no worker has ever
# served gets one with empty fields, which its first result replaces.
_EXPECT = text(
    """
    INSERT INTO encodings (
        tenant_id, user_id, fact_id, revision, model, model_revision, recipe, recipe_hash,
        state, reason, chunk_digest, num_tokens, updated_at
    )
    SELECT DISTINCT t.tenant_id, :user_id, f.fact_id, f.revision, m.model,
        coalesce(w.model_revision, ''), coalesce(w.recipe, ''), coalesce(w.recipe_hash, ''),
        'pending', '', '', 0, now()
    FROM tenants t
    CROSS JOIN unnest(CAST(:fact_ids AS text[]), CAST(:revisions AS integer[]))
        AS f (fact_id, revision)
    CROSS JOIN unnest(t.models) AS m (model)
    LEFT JOIN workers w ON w.model = m.model
    WHERE t.tenant_id = :tenant_id
    ON CONFLICT DO NOTHING
    """
)

_FORGET_OLD_TARGETS = text(
    """
    DELETE FROM encodings e
    WHERE e.tenant_id = :tenant_id AND e.fact_id = ANY (:fact_ids) AND e.model = :model
      AND (e.model_revision, e.recipe_hash) <> (:model_revision, :recipe_hash)
      AND NOT EXISTS (
        SELECT 1 FROM workers w
        WHERE w.model = e.model AND w.model_revision = e.model_revision
          AND w.recipe_hash = e.recipe_hash
      )
    """
)


_IS_SETTLED = text(
    """
    SELECT NOT EXISTS (
        SELECT 1 FROM facts f
        WHERE f.tenant_id = :tenant_id AND f.user_id = :user_id AND f.is_live
          AND NOT EXISTS (
            SELECT 1 FROM encodings e
            WHERE e.tenant_id = f.tenant_id AND e.fact_id = f.fact_id AND e.revision = f.revision
              AND e.model_revision = :model_revision AND e.recipe_hash = :recipe_hash
              AND e.state IN ('done', 'failed')
          )
    )
    """
)


class EncodingRepository:
    """States of an encode: pending, then done or failed; dropped when something it saw is gone.

    A fact that is written is pending for each target. `record` moves it on, or discards a result
    that came too late; `give_up` fails what has waited too long. Deletes and updates, in `facts`
    and `turns`, mark what depended on them.
    """

    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def expect(self, user_id: UserId, facts: Sequence[FactRef]) -> None:
        """Revisions were written: they are pending for every model of the tenant."""
        await self._session.execute(
            _EXPECT,
            {
                "tenant_id": self._tenant_id,
                "user_id": user_id,
                "fact_ids": [fact.fact_id for fact in facts],
                "revisions": [fact.revision for fact in facts],
            },
        )

    async def statuses(
        self, user_id: UserId, fact_ids: Collection[FactId]
    ) -> dict[FactId, tuple[EncodeStatus, ...]]:
        """By fact, in order of model and recipe. Facts without a state are absent."""
        rows = await self._session.scalars(
            select(EncodingRow)
            .where(
                EncodingRow.tenant_id == self._tenant_id,
                EncodingRow.user_id == user_id,
                EncodingRow.fact_id.in_(list(fact_ids)),
            )
            .order_by(EncodingRow.model, EncodingRow.model_revision, EncodingRow.recipe)
        )
        found: dict[FactId, list[EncodeStatus]] = {}
        for row in rows:
            found.setdefault(FactId(row.fact_id), []).append(_status(row))
        return {fact_id: tuple(statuses) for fact_id, statuses in found.items()}

    async def count(self, user_id: UserId) -> dict[EncodeState, int]:
        """How many of the user's encodes are in each state."""
        rows = await self._session.execute(
            select(EncodingRow.state, func.count())
            .where(EncodingRow.tenant_id == self._tenant_id, EncodingRow.user_id == user_id)
            .group_by(EncodingRow.state)
        )
        return {EncodeState(state): count for state, count in rows.tuples()}

    async def is_settled(
        self, user_id: UserId, model_revision: ModelRevision, recipe_hash: RecipeHash
    ) -> bool:
        """Whether every live fact of the user was encoded for this target, or cannot be."""
        parameters = {
            "tenant_id": self._tenant_id,
            "user_id": user_id,
            "model_revision": model_revision,
            "recipe_hash": recipe_hash,
        }
        return bool(await self._session.scalar(_IS_SETTLED, parameters))

    async def record(
        self, user_id: UserId, results: Sequence[EncodeResult], *, kv_epoch: int
    ) -> int:
        """Stores what a worker reported and returns how many results were kept.

        `kv_epoch` is the user's when the worker was asked. A result is discarded when the epoch has
        moved on since, or when its revision, a fact of its prefix at that revision, or a turn of
        its prefix is gone: its chunk may have seen what was removed. Discarding loses nothing, as
        the write that raised the epoch has queued the user again, and a worker reports chunks that
        it already holds.
        """
        if not results or not await self._is_at_epoch(user_id, kv_epoch):
            return 0
        live = await self._live_refs(user_id, _facts_of(results))
        turn_ids = await self._existing_turns(user_id, _turns_of(results))
        kept = {
            (result.fact, result.target): result
            for result in results
            if live.issuperset((result.fact, *result.prefix_facts))
            and turn_ids.issuperset(result.prefix_turn_ids)
        }
        for target in sorted({target for _, target in kept}, key=repr):
            await self._store(user_id, target, [r for r in kept.values() if r.target == target])
        return len(kept)

    async def give_up(self, user_id: UserId, model: str, reason: str) -> None:
        """What waits for the user's job of this model has failed, until a later job stores it."""
        await self._session.execute(
            update(EncodingRow)
            .where(
                EncodingRow.tenant_id == self._tenant_id,
                EncodingRow.user_id == user_id,
                EncodingRow.model == model,
                EncodingRow.state.in_([EncodeState.PENDING, EncodeState.DROPPED]),
            )
            .values(state=EncodeState.FAILED, reason=reason, updated_at=func.now())
        )

    async def _is_at_epoch(self, user_id: UserId, kv_epoch: int) -> bool:
        """Holds off the user's writers until the transaction ends."""
        current = await self._session.scalar(
            select(UserRow.kv_epoch)
            .where(UserRow.tenant_id == self._tenant_id, UserRow.user_id == user_id)
            .with_for_update(read=True)
        )
        return current == kv_epoch

    async def _live_refs(self, user_id: UserId, fact_ids: Collection[FactId]) -> set[FactRef]:
        rows = await self._session.execute(
            select(FactRow.fact_id, FactRow.revision).where(
                FactRow.tenant_id == self._tenant_id,
                FactRow.user_id == user_id,
                FactRow.is_live,
                FactRow.fact_id.in_(list(fact_ids)),
            )
        )
        return {FactRef(FactId(fact_id), revision) for fact_id, revision in rows.tuples()}

    async def _existing_turns(self, user_id: UserId, turn_ids: Collection[TurnId]) -> set[TurnId]:
        if not turn_ids:
            return set()
        rows = await self._session.scalars(
            select(TurnRow.turn_id).where(
                TurnRow.tenant_id == self._tenant_id,
                TurnRow.user_id == user_id,
                TurnRow.turn_id.in_(list(turn_ids)),
            )
        )
        return {TurnId(turn_id) for turn_id in rows}

    async def _store(
        self, user_id: UserId, target: EncodeTarget, results: Sequence[EncodeResult]
    ) -> None:
        statement = upsert(EncodingRow).values(
            [self._values(user_id, target, result) for result in results]
        )
        rows = await self._session.execute(
            statement.on_conflict_do_update(
                constraint="encodings_target_key",
                set_={
                    name: statement.excluded[name]
                    for name in (
                        "recipe",
                        "state",
                        "reason",
                        "chunk_digest",
                        "num_tokens",
                        "updated_at",
                    )
                },
            ).returning(EncodingRow.fact_id, EncodingRow.encoding_id)
        )
        encoding_ids = {FactId(fact_id): encoding_id for fact_id, encoding_id in rows.tuples()}
        await self._replace_edges(encoding_ids, results)
        await self._session.execute(
            _FORGET_OLD_TARGETS,
            {
                "tenant_id": self._tenant_id,
                "fact_ids": list(encoding_ids),
                "model": target.model,
                "model_revision": target.model_revision,
                "recipe_hash": target.recipe_hash,
            },
        )

    def _values(
        self, user_id: UserId, target: EncodeTarget, result: EncodeResult
    ) -> dict[str, object]:
        return {
            "tenant_id": self._tenant_id,
            "user_id": user_id,
            "fact_id": result.fact.fact_id,
            "revision": result.fact.revision,
            "model": target.model,
            "model_revision": target.model_revision,
            "recipe": target.recipe,
            "recipe_hash": target.recipe_hash,
            "state": result.state.value,
            "reason": result.reason,
            "chunk_digest": result.chunk_digest,
            "num_tokens": result.num_tokens,
            "updated_at": func.now(),
        }

    async def _replace_edges(
        self, encoding_ids: dict[FactId, int], results: Sequence[EncodeResult]
    ) -> None:
        for table in (ChunkFactRow, ChunkTurnRow):
            await self._session.execute(
                delete(table).where(
                    table.tenant_id == self._tenant_id,
                    table.encoding_id.in_(list(encoding_ids.values())),
                )
            )
        facts = {
            (encoding_ids[result.fact.fact_id], seen.fact_id): (seen.revision, result.saw_as_text)
            for result in results
            for seen in result.prefix_facts
        }
        turns = {
            (encoding_ids[result.fact.fact_id], turn_id)
            for result in results
            for turn_id in result.prefix_turn_ids
        }
        if facts:
            await self._session.execute(
                insert(ChunkFactRow),
                [
                    {
                        "tenant_id": self._tenant_id,
                        "encoding_id": encoding_id,
                        "prefix_fact_id": fact_id,
                        "prefix_revision": revision,
                        "is_text": is_text,
                    }
                    for (encoding_id, fact_id), (revision, is_text) in facts.items()
                ],
            )
        if turns:
            await self._session.execute(
                insert(ChunkTurnRow),
                [
                    {
                        "tenant_id": self._tenant_id,
                        "encoding_id": encoding_id,
                        "turn_id": turn_id,
                    }
                    for encoding_id, turn_id in sorted(turns)
                ],
            )


def _facts_of(results: Iterable[EncodeResult]) -> set[FactId]:
    return {ref.fact_id for result in results for ref in (result.fact, *result.prefix_facts)}


def _turns_of(results: Iterable[EncodeResult]) -> set[TurnId]:
    return {turn_id for result in results for turn_id in result.prefix_turn_ids}


def _status(row: EncodingRow) -> EncodeStatus:
    return EncodeStatus(
        fact=FactRef(FactId(row.fact_id), row.revision),
        target=EncodeTarget(
            row.model, ModelRevision(row.model_revision), row.recipe, RecipeHash(row.recipe_hash)
        ),
        state=EncodeState(row.state),
        updated_at=row.updated_at,
        reason=row.reason,
        num_tokens=row.num_tokens,
    )
