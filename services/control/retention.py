"""Removes what has been kept long enough, now and then, in every replica alike.

Replicas need no agreement: each takes rows that no other has locked. A batch is one transaction, so
that nobody waits long for what it holds.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import astuple

from inferscale_core.errors import InferScaleError
from inferscale_core.settings import RetentionSettings
from inferscale_core.store import EndedHistory, Store
from inferscale_core.telemetry.logs import get_logger

EVERY_S = 6 * 3600.0
BATCH_ROWS = 5_000
"""Of each kind: some 50 ms of Postgres."""

_log = get_logger(__name__)


class Retention:
    def __init__(
        self, store: Store, settings: RetentionSettings, *, batch_rows: int = BATCH_ROWS
    ) -> None:
        self._store = store
        self._settings = settings
        self._batch_rows = batch_rows

    async def watch(self) -> None:
        """Until cancelled. Returns at once when all is kept for ever."""
        if not (self._settings.history_days or self._settings.audit_days):
            return
        while True:
            # Not all replicas at once, nor each at its start.
            await asyncio.sleep(random.uniform(0.5, 1.0) * EVERY_S)
            try:
                await self.end()
            except InferScaleError as exc:
                _log.warning("retention.failed", exc=exc)

    async def end(self) -> EndedHistory:
        """Remove all that is old enough now."""
        ended = [await self._end_batch()]
        while ended[-1].most == self._batch_rows:
            ended.append(await self._end_batch())
        total = EndedHistory(*(sum(kind) for kind in zip(*map(astuple, ended), strict=True)))
        if total.most:
            _log.info(
                "retention.ended",
                requests=total.requests,
                removals=total.removals,
                audit=total.audit,
            )
        return total

    async def _end_batch(self) -> EndedHistory:
        async with self._store.system() as tx:
            return await tx.end_history(
                history_days=self._settings.history_days,
                audit_days=self._settings.audit_days,
                max_rows=self._batch_rows,
            )
