"""Removing what is kept for a time only: request ids, ids of what is gone, the audit trail."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_END = text(
    "SELECT requests, removals, audit"
    " FROM inferscale_end_history(:history_days, :audit_days, :max_rows)"
)


@dataclass(frozen=True, slots=True)
class EndedHistory:
    """Rows removed."""

    requests: int = 0
    removals: int = 0
    audit: int = 0

    @property
    def most(self) -> int:
        """Of one kind."""
        return max(self.requests, self.removals, self.audit)


async def end_history(
    session: AsyncSession, *, history_days: int, audit_days: int, max_rows: int
) -> EndedHistory:
    """Remove up to `max_rows` rows of each kind that are older; 0 days keep all.

    Ids of what is gone stay for as long as a worker may have to learn of it, or a request that is
    kept names it.
    """
    fields = {"history_days": history_days, "audit_days": audit_days, "max_rows": max_rows}
    return EndedHistory(*(await session.execute(_END, fields)).one())
