"""The worker's picture of the engine's chunk directory, drawn from its events.

It may be late: it serves to order facts, to choose what to encode and to report. Whether a chunk is
really injected is decided again in the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.canonical import scope_of
from inferscale_core.memory.facts import FactRef
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.metrics import CacheMetrics
from inferscale_core.vllm_connector.events import Event, EventKind

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MirroredChunk:
    """fact is None for the header. tier: where the engine holds it, "gpu" for its arena."""

    key: ChunkKey
    num_tokens: int
    fact: FactRef | None
    tier: str


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
        self._num_published: dict[UserScope, int] = {}
        self._num_unzeroed: dict[UserScope, int] = {}
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

    def num_published(self, scope: UserScope) -> int:
        """Chunks published for this user since the start; never goes down."""
        return self._num_published.get(scope, 0)

    def apply(self, event: Event) -> None:
        """Take the next event; every one must pass here, in order."""
        self._check_sequence(event.seq)
        if event.kind is EventKind.PUBLISHED:
            self.add(_published_chunk(event))
        elif event.kind is EventKind.DROPPED:
            self._evict(event)
        elif event.kind is EventKind.ZEROED:
            self._count_unzeroed(event, -1)

    def num_unzeroed(self, scope: UserScope) -> int:
        """Forgotten chunks of the user whose pages wait for a reader to end."""
        return self._num_unzeroed.get(scope, 0)

    def add(self, chunk: MirroredChunk) -> None:
        """The chunk is resident, as an event or the refusal of a duplicate says."""
        scope = scope_of(chunk.key)
        self._chunks[chunk.key] = chunk
        self._keys_by_scope.setdefault(scope, set()).add(chunk.key)
        self._num_published[scope] = self._num_published.get(scope, 0) + 1

    def discard(self, key: ChunkKey) -> None:
        """The engine turned out not to have it."""
        if self._chunks.pop(key, None) is None:
            return
        scope = scope_of(key)
        self._keys_by_scope[scope].discard(key)
        if not self._keys_by_scope[scope]:
            del self._keys_by_scope[scope]

    def _evict(self, event: Event) -> None:
        self.discard(ChunkKey(event.fields["key"]))
        if event.fields["pending"]:
            self._count_unzeroed(event, 1)
        if event.fields["reason"] == "evicted":
            self.num_evictions += 1
            if self._metrics:
                self._metrics.evicted()

    def _count_unzeroed(self, event: Event, change: int) -> None:
        """A chunk's drop comes before its zeroing, unless a gap lies between them."""
        scope = scope_of(ChunkKey(event.fields["key"]))
        count = self._num_unzeroed.get(scope, 0) + change
        if count > 0:
            self._num_unzeroed[scope] = count
        else:
            self._num_unzeroed.pop(scope, None)

    def _check_sequence(self, seq: int) -> None:
        if seq != self._last_seq + 1:
            self.num_gaps += 1
            _log.warning("mirror.gap", expected=self._last_seq + 1, received=seq)
            self._chunks.clear()
            self._keys_by_scope.clear()
            self._num_unzeroed.clear()
        self._last_seq = seq


def _published_chunk(event: Event) -> MirroredChunk:
    fields = event.fields
    fact_id = fields["fact"]
    fact = FactRef(FactId(fact_id), fields["revision"]) if fact_id is not None else None
    return MirroredChunk(ChunkKey(fields["key"]), fields["num_tokens"], fact, fields["tier"])
