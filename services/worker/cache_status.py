"""What this worker holds, in total and of one user."""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.ids import UserScope
from services.worker.break_even import BreakEven
from services.worker.engine.mirror import DirectoryMirror, MirroredChunk
from services.worker.engine.protocol import ArenaSize
from services.worker.users import UserCache


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """chunks: of the user that was asked for. memory_version: of the worker's copy, 0 without.
    min_injected_tokens: memory shorter than this is served as text."""

    chunks: tuple[MirroredChunk, ...]
    resident_chunks: int
    resident_bytes: int
    capacity_bytes: int
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
            resident_bytes=self.resident_bytes(),
            capacity_bytes=self._arena.num_pages * self._arena.page_bytes,
            evictions=self._mirror.num_evictions,
            memory_version=held.memory_version if held else 0,
            min_injected_tokens=self._break_even.min_tokens,
        )

    def resident_bytes(self) -> int:
        """On each rank, whole pages."""
        pages = sum(self._arena.pages_for(chunk.num_tokens) for chunk in list(self._mirror))
        return pages * self._arena.page_bytes
