"""Tells how full the tiers are, without a say for every pin."""

from __future__ import annotations

import time
from collections.abc import Callable

from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.sinks import EventLog

MIN_INTERVAL_S = 0.25
"""Between two events while requests run. The last of a busy time follows when it ends."""


class UsageReport:
    """Owned by the scheduler thread."""

    def __init__(
        self,
        directory: ChunkDirectory,
        events: EventLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rooms = directory.rooms
        self._events = events
        self._clock = clock
        self._told: tuple[int, ...] = ()
        self._told_at = float("-inf")

    def changed(self, *, is_idle: bool) -> None:
        """Something may have changed. Cheap when nothing has, or too little time has passed."""
        now = self._clock()
        if not is_idle and now - self._told_at < MIN_INTERVAL_S:
            return
        rooms = self._rooms.values()
        counts = tuple(n for room in rooms for n in (room.num_used, room.num_pinned))
        if counts == self._told:
            return
        self._told, self._told_at = counts, now
        self._events.emit(
            EventKind.USAGE,
            num_pages={tier: room.num_used for tier, room in self._rooms.items()},
            num_pinned={tier: room.num_pinned for tier, room in self._rooms.items()},
        )
