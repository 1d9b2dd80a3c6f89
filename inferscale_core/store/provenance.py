"""Dropping every chunk that saw something that is gone.

A ◄── B ◄── C      edges are direct: B saw A, C saw B. Deleting A reaches B, then C.

Where C saw B as text, C depends on what B states alone: deleting A reaches B, and not C.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.types import Text

from inferscale_core.ids import FactId, TenantId, TurnId, UserId

SAW_DELETED = "saw_deleted"
SAW_UPDATED = "saw_updated"

# A chunk depends on another of the same model revision and recipe, so the walk never crosses them.
_DROP = text(
    """
    WITH RECURSIVE reached AS (
        SELECT e.encoding_id, e.fact_id, e.model, e.model_revision, e.recipe_hash
        FROM encodings e
        WHERE e.tenant_id = :tenant_id AND e.user_id = :user_id
          AND (
            EXISTS (
                SELECT 1 FROM chunk_facts c
                WHERE c.tenant_id = e.tenant_id AND c.encoding_id = e.encoding_id
                  AND c.prefix_fact_id = ANY (:fact_ids)
            ) OR EXISTS (
                SELECT 1 FROM chunk_turns c
                WHERE c.tenant_id = e.tenant_id AND c.encoding_id = e.encoding_id
                  AND c.turn_id = ANY (:turn_ids)
            )
          )
        UNION
        SELECT e.encoding_id, e.fact_id, e.model, e.model_revision, e.recipe_hash
        FROM reached r
        JOIN chunk_facts c ON c.tenant_id = :tenant_id AND c.prefix_fact_id = r.fact_id
            AND NOT c.is_text
        JOIN encodings e ON e.tenant_id = c.tenant_id AND e.encoding_id = c.encoding_id
        WHERE e.model = r.model AND e.model_revision = r.model_revision
          AND e.recipe_hash = r.recipe_hash
    ), forgotten_facts AS (
        DELETE FROM chunk_facts c USING reached r
        WHERE c.tenant_id = :tenant_id AND c.encoding_id = r.encoding_id
    ), forgotten_turns AS (
        DELETE FROM chunk_turns c USING reached r
        WHERE c.tenant_id = :tenant_id AND c.encoding_id = r.encoding_id
    )
    UPDATE encodings e
    SET state = 'dropped', reason = :reason, chunk_digest = '', num_tokens = 0, updated_at = now()
    FROM reached r
    WHERE e.tenant_id = :tenant_id AND e.encoding_id = r.encoding_id
      AND NOT (e.fact_id = ANY (:fact_ids))
    RETURNING e.fact_id
    """
).bindparams(
    bindparam("fact_ids", type_=ARRAY(Text)),
    bindparam("turn_ids", type_=ARRAY(Text)),
)


async def drop_dependants(
    session: AsyncSession,
    tenant_id: TenantId,
    user_id: UserId,
    *,
    fact_ids: Sequence[FactId] = (),
    turn_ids: Sequence[TurnId] = (),
    reason: str,
) -> tuple[FactId, ...]:
    """Marks every chunk that saw one of these, directly or through others, and forgets its edges.

    Returns the facts of those chunks, the given ones excluded, in order of their ids.
    """
    found = await session.execute(
        _DROP,
        {
            "tenant_id": tenant_id,
            "user_id": user_id,
            "fact_ids": list(fact_ids),
            "turn_ids": list(turn_ids),
            "reason": reason,
        },
    )
    return tuple(FactId(fact_id) for fact_id in sorted(set(found.scalars())))
