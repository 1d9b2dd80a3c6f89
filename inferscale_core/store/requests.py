"""Request ids that were used, so that a repeated request gives the first answer again.

What is kept is ids and a hash of the request's content, never text.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import FactId, RequestId, TenantId, TurnId
from inferscale_core.store.rows import RequestRow


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What is needed to give the first answer again.

    fact_ids: one for each item, None for an item that was refused. error_codes: the code of each
    refusal, in the order of items, empty for an item that was stored. dropped: dependants dropped.
    """

    memory_version: int = 0
    fact_ids: tuple[FactId | None, ...] = ()
    error_codes: tuple[str, ...] = ()
    turn_ids: tuple[TurnId, ...] = ()
    receipt_id: str | None = None
    num_removed: int = 0
    num_dependants: int = 0


class RequestLog:
    """A request id is free, then claimed by one transaction, then completed by its commit.

    `claim` comes first in a mutation: of two requests with one id the second waits there until the
    first has committed (and then replays) or was rolled back (and then runs).
    """

    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def find(
        self, request_id: RequestId, operation: str, content: str
    ) -> RequestOutcome | None:
        """The outcome of an earlier request with this id. None: there was none.

        `content` is a hash of all that the request says. Raises InvalidInput naming `request_id`
        when the earlier request said something else.
        """
        row = (
            await self._session.execute(
                select(RequestRow.operation, RequestRow.content_hash, RequestRow.outcome).where(
                    RequestRow.tenant_id == self._tenant_id, RequestRow.request_id == request_id
                )
            )
        ).one_or_none()
        if row is None:
            return None
        if (row.operation, row.content_hash) != (operation, content):
            raise InvalidInput("request_id", f"{request_id!r} was used for another request")
        return _outcome(row.outcome or {})

    async def claim(
        self, request_id: RequestId, operation: str, content: str
    ) -> RequestOutcome | None:
        """Like `find`, but where there was none the id is this transaction's from now on."""
        claimed = await self._session.scalar(
            insert(RequestRow)
            .values(
                tenant_id=self._tenant_id,
                request_id=request_id,
                operation=operation,
                content_hash=content,
                created_at=func.now(),
            )
            .on_conflict_do_nothing()
            .returning(RequestRow.request_id)
        )
        if claimed is not None:
            return None
        return await self.find(request_id, operation, content)

    async def complete(self, request_id: RequestId, outcome: RequestOutcome) -> None:
        """Every transaction that claimed an id ends with this, or is rolled back."""
        await self._session.execute(
            update(RequestRow)
            .where(RequestRow.tenant_id == self._tenant_id, RequestRow.request_id == request_id)
            .values(outcome=asdict(outcome))
        )


def _outcome(fields: dict[str, Any]) -> RequestOutcome:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return RequestOutcome(**values)
