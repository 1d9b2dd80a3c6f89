"""What this worker holds, in total and of one user."""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.ids import UserScope
from inferscale_core.kv.tiers import Tier
from services.worker.break_even import BreakEven
from services.worker.engine.mirror import DirectoryMirror, MirroredChunk, TierUsage
from services.worker.engine.protocol import ArenaSize
from services.worker.users import UserCache


@dataclass(frozen=True, slots=True)
class TierStatus:
    """Bytes on each rank, whole pages. pinned_bytes: being read or written."""

    tier: Tier
    resident_bytes: int
    capacity_bytes: int
    pinned_bytes: int


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """chunks: of the user that was asked for. tiers: those there are, the arena first.
    memory_version: of the worker's copy, 0 without.
    min_injected_tokens: memory shorter than this is served as text."""

    chunks: tuple[MirroredChunk, ...]
    resident_chunks: int
    tiers: tuple[TierStatus, ...]
    evictions: int
    memory_version: int
    min_injected_tokens: int


class CacheReport:
    def __init__(
        self,
        mirror: DirectoryMirror,
        users: UserCache,
        arena: ArenaSize,
        break_even: BreakEven,
    ) -> None:
        self._mirror = mirror
        self._users = users
        self._arena = arena
        self._break_even = break_even

    def status(self, scope: UserScope | None) -> CacheStatus:
        """None: the totals only."""
        held = self._users.peek(scope) if scope else None
        return CacheStatus(
            chunks=tuple(self._mirror.of_scope(scope)) if scope else (),
            resident_chunks=len(self._mirror),
            tiers=self.tiers(),
            evictions=self._mirror.num_evictions,
            memory_version=held.memory_version if held else 0,
            min_injected_tokens=self._break_even.min_tokens,
        )

    def tiers(self) -> tuple[TierStatus, ...]:
        """Those that the engine has. Late by a quarter of a second while requests run."""
        page_bytes = self._arena.page_bytes
        return tuple(
            TierStatus(
                tier,
                self._usage(tier).num_pages * page_bytes,
                self._arena.num_pages_of(tier) * page_bytes,
                self._usage(tier).num_pinned * page_bytes,
            )
            for tier in Tier
            if self._arena.num_pages_of(tier)
        )

    def resident_bytes(self) -> int:
        """In the arena of each rank, whole pages."""
        return self._usage(Tier.GPU).num_pages * self._arena.page_bytes

    def pinned_bytes(self) -> int:
        return self._usage(Tier.GPU).num_pinned * self._arena.page_bytes

    def _usage(self, tier: Tier) -> TierUsage:
        return self._mirror.usage.get(tier, TierUsage())
