"""Proves now and then, while nothing is asked of the engine, that no page was lost."""

from __future__ import annotations

import time
from collections.abc import Callable

from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)

CHECK_EVERY_S = 1800.0
"""A check looks at every chunk: about 0.6 s for 100,000 of them, which a request that comes just
then waits for."""


class IdleCheck:
    """Owned by the scheduler thread. What it finds is logged once and never raised: requests are
    served as before, from chunks that are checked by themselves."""

    def __init__(
        self, directory: ChunkDirectory, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._checked_at = clock()
        self.problem: str | None = None

    def maybe(self) -> None:
        """The engine has nothing to do. Checks when the last time was long ago."""
        now = self._clock()
        if now - self._checked_at < CHECK_EVERY_S or self.problem is not None:
            return
        self._checked_at = now
        try:
            self._directory.check_conservation()
        except AssertionError as exc:
            self.problem = str(exc)
            _log.error("directory.not_conserved", problem=self.problem)
