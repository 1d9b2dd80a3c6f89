"""The worker's picture of the engine's chunk directory, drawn from its events.

It may be late: it serves to order facts, to choose what to encode and to report. Whether a chunk is
really injected is decided again in the engine.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.canonical import scope_of
from inferscale_core.memory.facts import FactRef
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.metrics import CacheMetrics
from inferscale_core.vllm_connector.events import Event, EventKind

_log = get_logger(__name__)

_TIERS: dict[str, Tier] = {tier.value: tier for tier in Tier}


class MirroredChunk(msgspec.Struct, frozen=True, gc=False):
    """fact is None for the header. tier: the fastest that has it."""

    key: ChunkKey
    num_tokens: int
    fact: FactRef | None
    tier: Tier


@dataclass(frozen=True, slots=True)
class TierUsage:
    """Pages of each rank that are held, and of these pinned: being read or written."""

    num_pages: int = 0
    num_pinned: int = 0


class DirectoryMirror:
    """Which chunks are resident. Belongs to one event loop; other threads may ask `in`.

    A gap in the numbers of events means that some were lost, so nothing that the mirror holds is
    certain: it forgets everything. Chunks are then encoded again, and the engine says of those it
    still has that they are duplicates.
    """

    def __init__(self, metrics: CacheMetrics | None = None) -> None:
        self._metrics = metrics
        self._chunks: dict[ChunkKey, MirroredChunk] = {}
        self._keys_by_scope: dict[UserScope, set[ChunkKey]] = {}
        self._watches: dict[UserScope, list[deque[ChunkKey]]] = {}
        self._newest_publish: dict[UserScope, int] = {}
        self._unzeroed: dict[UserScope, Counter[Tier]] = {}
        self._num_publishes = 0
        self.usage: dict[Tier, TierUsage] = {}
        self._last_seq = 0
        self.num_gaps = 0
        self.num_evictions = 0

    def __contains__(self, key: object) -> bool:
        return key in self._chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[MirroredChunk]:
        return iter(self._chunks.values())

    def get(self, key: ChunkKey) -> MirroredChunk | None:
        return self._chunks.get(key)

    def of_scope(self, scope: UserScope) -> list[MirroredChunk]:
        return [self._chunks[key] for key in self._keys_by_scope.get(scope, ())]

    def keys_of(self, scope: UserScope) -> set[ChunkKey]:
        """A copy."""
        return set(self._keys_by_scope.get(scope, ()))

    @contextmanager
    def watch(self, scope: UserScope) -> Iterator[deque[ChunkKey]]:
        """The user's chunks that have come or gone while the block runs, for whoever watches to
        take. Which of both it is, is asked of the mirror then."""
        changed: deque[ChunkKey] = deque()
        watches = self._watches.setdefault(scope, [])
        watches.append(changed)
        try:
            yield changed
        finally:
            # Equal ones are not the same watch.
            watches[:] = [one for one in watches if one is not changed]
            if not watches:
                del self._watches[scope]

    def num_published(self, scope: UserScope) -> int:
        """Chunks published on this worker up to the user's newest; 0 while the user has none. Of
        two times with the same number, the earlier one had all chunks of the later one."""
        return self._newest_publish.get(scope, 0)

    def apply(self, event: Event) -> None:
        """Take the next event; every one must pass here, in order."""
        self._check_sequence(event.seq)
        if event.kind is EventKind.PUBLISHED:
            self.add(_published_chunk(event))
        elif event.kind is EventKind.MOVED:
            self._move(ChunkKey(event.fields["key"]), Tier(event.fields["tier"]))
        elif event.kind is EventKind.DROPPED:
            self._evict(event)
        elif event.kind is EventKind.ZEROED:
            self._count_unzeroed(event, [event.fields["tier"]], -1)
        elif event.kind is EventKind.USAGE:
            self.usage = _usage(event)

    def unzeroed(self, scope: UserScope) -> dict[Tier, int]:
        """Copies of the user's forgotten chunks that wait for a reader or writer to end."""
        return dict(self._unzeroed.get(scope, {}))

    def add(self, chunk: MirroredChunk) -> None:
        """The chunk is resident, as an event or the refusal of a duplicate says."""
        scope = scope_of(chunk.key)
        self._chunks[chunk.key] = chunk
        self._keys_by_scope.setdefault(scope, set()).add(chunk.key)
        self._num_publishes += 1
        self._newest_publish[scope] = self._num_publishes
        self._tell(scope, chunk.key)

    def discard(self, key: ChunkKey) -> None:
        """The engine turned out not to have it."""
        if self._chunks.pop(key, None) is None:
            return
        scope = scope_of(key)
        self._keys_by_scope[scope].discard(key)
        if not self._keys_by_scope[scope]:
            del self._keys_by_scope[scope]
            del self._newest_publish[scope]
        self._tell(scope, key)

    def _tell(self, scope: UserScope, *keys: ChunkKey) -> None:
        for changed in self._watches.get(scope, ()):
            changed.extend(keys)

    def _move(self, key: ChunkKey, tier: Tier) -> None:
        chunk = self._chunks.get(key)
        if chunk is not None:
            self._chunks[key] = msgspec.structs.replace(chunk, tier=tier)

    def _evict(self, event: Event) -> None:
        self.discard(ChunkKey(event.fields["key"]))
        if event.fields["pending"]:
            self._count_unzeroed(event, event.fields["pending"], 1)
        if event.fields["reason"] == "evicted":
            self.num_evictions += 1
            if self._metrics:
                self._metrics.evicted()

    def _count_unzeroed(self, event: Event, tiers: Iterable[str], change: int) -> None:
        """A chunk's drop comes before its zeroing, unless a gap lies between them."""
        scope = scope_of(ChunkKey(event.fields["key"]))
        counts = self._unzeroed.setdefault(scope, Counter())
        for tier in map(Tier, tiers):
            counts[tier] += change
        self._unzeroed[scope] = +counts
        if not self._unzeroed[scope]:
            del self._unzeroed[scope]

    def _check_sequence(self, seq: int) -> None:
        if seq != self._last_seq + 1:
            self.num_gaps += 1
            _log.warning("mirror.gap", expected=self._last_seq + 1, received=seq)
            for scope in self._watches:
                self._tell(scope, *self._keys_by_scope.get(scope, ()))
            self._chunks.clear()
            self._keys_by_scope.clear()
            self._newest_publish.clear()
            self._unzeroed.clear()
        self._last_seq = seq


def _published_chunk(event: Event) -> MirroredChunk:
    fields = event.fields
    fact_id = fields["fact"]
    fact = FactRef(FactId(fact_id), fields["revision"]) if fact_id is not None else None
    tier = _TIERS[fields["tier"]]
    return MirroredChunk(ChunkKey(fields["key"]), fields["num_tokens"], fact, tier)


def _usage(event: Event) -> dict[Tier, TierUsage]:
    pages, pinned = event.fields["num_pages"], event.fields["num_pinned"]
    return {Tier(name): TierUsage(pages[name], pinned[name]) for name in pages}
