"""Which captures came too late: planned before something of their user was forgotten."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from inferscale_core.ids import UserScope

MAX_FENCES = 100_000
"""Users; about 250 bytes each."""


@dataclass(frozen=True, slots=True)
class _Fence:
    version: int
    raised_at: float


class Fences:
    """The newest forget of each user, for as many users as fit.

    When a fence makes room for others, every capture that was planned before it was raised is
    stopped, whoever's it is: the plan's time stands for the version that is no longer known. So
    what is forgotten here costs a capture that took very long another attempt, and never lets a
    late one through.
    """

    def __init__(
        self, max_fences: int = MAX_FENCES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """clock: seconds, the same for all processes of this machine."""
        self._max_fences = max_fences
        self._clock = clock
        self._fences: OrderedDict[UserScope, _Fence] = OrderedDict()
        self._dropped_at = float("-inf")

    def __len__(self) -> int:
        return len(self._fences)

    def raise_to(self, scope: UserScope, version: int) -> None:
        """Something of the scope was forgotten at this memory version."""
        known = self._fences.pop(scope, None)
        if known is not None:
            version = max(version, known.version)
        self._fences[scope] = _Fence(version, self._clock())
        if len(self._fences) > self._max_fences:
            _, oldest = self._fences.popitem(last=False)
            self._dropped_at = oldest.raised_at

    def stop(self, scope: UserScope, planned_version: int, planned_at: float) -> bool:
        """planned_at: on the clock, a time at which this version was the user's newest."""
        fence = self._fences.get(scope)
        if fence is not None:
            return planned_version < fence.version
        return planned_at <= self._dropped_at
