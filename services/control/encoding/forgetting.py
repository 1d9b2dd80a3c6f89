"""Telling every worker that holds a user what to forget.

Called after the commit, and never what makes a delete safe: from the commit on no worker may serve
the user below the new version. It makes the promise's second half, that what is gone is purged,
come true at once where a worker answers, and by a queued job where none does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from inferscale_core.errors import InferScaleError
from inferscale_core.ids import WorkerId
from inferscale_core.telemetry import names
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.tracing import span
from services.control.worker_messages import Forgotten, Purge
from services.control.workers import UserAt, WorkerChannels, WorkerDirectory

_log = get_logger(__name__)


class Forgetter:
    def __init__(self, directory: WorkerDirectory, channels: WorkerChannels) -> None:
        self._directory = directory
        self._channels = channels

    async def forget_everywhere(
        self, user: UserAt, holders: Iterable[WorkerId], what: Forgotten, *, wait_s: float
    ) -> Mapping[WorkerId, Purge]:
        """The answers of those that gave one within `wait_s`; all are asked at the same time."""
        holders = list(holders)
        if not holders or wait_s <= 0:
            return {}
        answers = await asyncio.gather(
            *(self._ask(user, worker_id, what, wait_s) for worker_id in holders)
        )
        return {
            worker_id: answer
            for worker_id, answer in zip(holders, answers, strict=True)
            if answer is not None
        }

    async def forget(
        self, user: UserAt, worker_id: WorkerId, what: Forgotten, *, limit_s: float
    ) -> Purge:
        """Raises Unavailable when the worker does not answer, NotFound when it was removed."""
        worker = await self._directory.get(worker_id)
        with span(names.FORGET, {names.WORKER_ID: worker_id, names.USER_ID: user.user_id}):
            return await self._channels.client(worker).forget(user, what, limit_s=limit_s)

    async def _ask(
        self, user: UserAt, worker_id: WorkerId, what: Forgotten, wait_s: float
    ) -> Purge | None:
        try:
            async with asyncio.timeout(wait_s):
                return await self.forget(user, worker_id, what, limit_s=wait_s)
        except (InferScaleError, TimeoutError) as exc:
            _log.warning("forget.unanswered", exc=exc, worker_id=worker_id)
            return None
