"""Which chunks exist, where their tokens are, who reads them, and what each of them saw.

    reserve ──► reserved ──publish──► resident ──evict─────────────► gone
                   │ release                │ forget, unpinned ────► gone
                   ▼                        │ forget, pinned ──► doomed ──last unpin──► gone
                  gone

A reserved chunk is being written and cannot be found. A resident chunk is found, pinned while a
step reads it, and otherwise evictable, least recently used first. A doomed chunk cannot be found;
its pages are freed when the last reader ends. Freed pages are zeroed before they are used again.

The scheduler side owns the one directory of an engine. Worker ranks only execute what it decides,
so tensor-parallel ranks cannot disagree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.pages import PagePool
from inferscale_core.memory.canonical import scope_of
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Span


class ChunkState(Enum):
    RESERVED = "reserved"
    RESIDENT = "resident"
    DOOMED = "doomed"


@dataclass(slots=True)
class Entry:
    """slots, origins: [num_tokens], int64: the arena row of each token, and the position at which
    its key was computed. holder: names the pages in the pool."""

    holder: int
    key: ChunkKey
    fact: FactRef | None
    num_tokens: int
    prefix_keys: tuple[ChunkKey, ...]
    slots: NDArray[np.int64]
    origins: NDArray[np.int64]
    state: ChunkState = ChunkState.RESERVED
    num_pins: int = 0
    cancelled: bool = False

    @property
    def is_permanent(self) -> bool:
        return self.fact is None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What one `forget` dropped. pending: of `keys`, those whose pages still have a reader."""

    keys: tuple[ChunkKey, ...] = ()
    num_dependants: int = 0
    num_tokens: int = 0
    pending: tuple[ChunkKey, ...] = ()


@dataclass(slots=True)
class DirectoryStats:
    """Counts since the start. hits and misses: spans asked for by requests that were scheduled."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    published: int = 0
    forgotten: int = 0


class ChunkDirectory:
    """See the module's docstring for the states. Owned by the scheduler thread."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._entries: dict[ChunkKey, Entry] = {}
        self._doomed: list[Entry] = []
        self._lru: OrderedDict[ChunkKey, None] = OrderedDict()
        self._keys_by_scope: dict[UserScope, set[ChunkKey]] = {}
        self._readers: dict[ChunkKey, set[ChunkKey]] = {}
        self._fences: dict[UserScope, int] = {}
        self._evicted: list[ChunkKey] = []
        self._next_holder = 0
        self.generation = 0
        """Grows whenever a chunk begins or ceases to be resident."""
        self._page_offsets = np.arange(pool.page_tokens, dtype=np.int64)
        self.stats = DirectoryStats()

    def get(self, key: ChunkKey) -> Entry | None:
        """The resident chunk `key`."""
        entry = self._entries.get(key)
        return entry if entry is not None and entry.state is ChunkState.RESIDENT else None

    def resident_run(self, spans: Sequence[Span]) -> list[Entry]:
        """The longest leading run of spans that are resident with exactly that many tokens."""
        run = []
        for span in spans:
            entry = self.get(span.key)
            if entry is None or entry.num_tokens != span.num_tokens:
                break
            run.append(entry)
        return run

    def is_fenced(self, scope: UserScope, planned_version: int) -> bool:
        """Whether something of the scope was forgotten after this version was planned."""
        return planned_version < self._fences.get(scope, 0)

    def reserve(
        self,
        key: ChunkKey,
        num_tokens: int,
        *,
        origin: int,
        fact: FactRef | None,
        prefix_keys: tuple[ChunkKey, ...],
    ) -> Entry | None:
        """Take pages for a chunk that is about to be written, evicting unpinned ones for room.

        Returns None, and evicts nothing, when pinned and reserved chunks leave too little room.
        End every reservation with `publish` or `release`.
        """
        assert key not in self._entries, "a key is reserved once"
        if not self._make_room(self._pool.pages_for(num_tokens)):
            return None
        self._next_holder += 1
        pages = self._pool.take(self._next_holder, num_tokens)
        assert pages is not None, "room was made"
        slots = self._slots(pages, num_tokens)
        origins = np.arange(origin, origin + num_tokens, dtype=np.int64)
        entry = Entry(self._next_holder, key, fact, num_tokens, prefix_keys, slots, origins)
        self._entries[key] = entry
        self._keys_by_scope.setdefault(scope_of(key), set()).add(key)
        for seen in prefix_keys:
            self._readers.setdefault(seen, set()).add(key)
        return entry

    def holds(self, key: ChunkKey) -> bool:
        """Whether the key is reserved or resident."""
        return key in self._entries

    def reserved(self, key: ChunkKey) -> Entry:
        """The entry of a reservation that has not ended."""
        entry = self._entries[key]
        assert entry.state is ChunkState.RESERVED
        return entry

    def publish(self, key: ChunkKey) -> bool:
        """The chunk is written. False when it was forgotten meanwhile: then its pages are freed."""
        entry = self._entries[key]
        assert entry.state is ChunkState.RESERVED
        if entry.cancelled:
            self._remove(entry)
            return False
        entry.state = ChunkState.RESIDENT
        self.generation += 1
        if not entry.is_permanent:
            self._lru[key] = None
        self.stats.published += 1
        return True

    def release(self, key: ChunkKey) -> None:
        """Abandon a reservation."""
        entry = self._entries[key]
        assert entry.state is ChunkState.RESERVED
        self._remove(entry)

    def pin(self, entries: Iterable[Entry]) -> None:
        """The entries, all resident, are read until `unpin`."""
        for entry in entries:
            assert entry.state is ChunkState.RESIDENT
            entry.num_pins += 1

    def unpin(self, entries: Iterable[Entry]) -> list[ChunkKey]:
        """End one reader of each; returns the doomed ones whose pages are freed by that."""
        freed = []
        for entry in entries:
            entry.num_pins -= 1
            assert entry.num_pins >= 0
            if entry.num_pins == 0:
                if entry.state is ChunkState.DOOMED:
                    self._doomed.remove(entry)
                    self._pool.give_back(entry.holder)
                    freed.append(entry.key)
                elif not entry.is_permanent:
                    self._lru.move_to_end(entry.key)
        return freed

    def forget(self, scope: UserScope, fact_ids: Iterable[FactId], version: int) -> Forgotten:
        """Drop the chunks of these facts in the scope and all that saw them, through others too.

        Captures planned before `version` are refused from now on.
        """
        self._fences[scope] = max(version, self._fences.get(scope, 0))
        wanted = set(fact_ids)
        own = {
            key
            for key in self._keys_by_scope.get(scope, ())
            if (fact := self._entries[key].fact) is not None and fact.fact_id in wanted
        }
        every = self._with_readers(own)
        # One being written that was forgotten before is on its way out already.
        entries = [e for key in sorted(every) if not (e := self._entries[key]).cancelled]
        pending = tuple(entry.key for entry in entries if self._drop(entry))
        self.stats.forgotten += len(entries)
        return Forgotten(
            keys=tuple(entry.key for entry in entries),
            num_dependants=sum(entry.key not in own for entry in entries),
            num_tokens=sum(entry.num_tokens for entry in entries),
            pending=pending,
        )

    def drain_to_zero(self) -> NDArray[np.int64]:
        """Arena rows freed since the last call; to be zeroed before any is written again."""
        pages = np.asarray(self._pool.drain_to_zero(), dtype=np.int64)
        return self._rows(pages)

    @property
    def has_rows_to_zero(self) -> bool:
        return self._pool.has_pages_to_zero

    def drain_evicted(self) -> list[ChunkKey]:
        keys, self._evicted = self._evicted, []
        return keys

    @property
    def num_resident(self) -> int:
        return sum(entry.state is ChunkState.RESIDENT for entry in self._entries.values())

    @property
    def num_pinned(self) -> int:
        return sum(entry.num_pins > 0 for entry in (*self._entries.values(), *self._doomed))

    @property
    def num_reserved(self) -> int:
        return sum(entry.state is ChunkState.RESERVED for entry in self._entries.values())

    def check_conservation(self) -> None:
        """No page is lost or held twice, and every index agrees with the entries."""
        self._pool.check_conservation()
        held = {*self._entries, *(entry.key for entry in self._doomed)}
        used = sum(
            self._pool.pages_for(entry.num_tokens)
            for entry in (*self._entries.values(), *self._doomed)
        )
        assert used + self._pool.num_free == self._pool.num_pages, "pages held by no entry"
        indexed = {key for keys in self._keys_by_scope.values() for key in keys}
        assert indexed == set(self._entries), "the scope index disagrees with the entries"
        evictable = {
            entry.key
            for entry in self._entries.values()
            if entry.state is ChunkState.RESIDENT and not entry.is_permanent
        }
        assert set(self._lru) == evictable, "the eviction order disagrees with the entries"
        assert held >= set(self._lru)

    def _with_readers(self, keys: set[ChunkKey]) -> set[ChunkKey]:
        reached = set(keys)
        frontier = list(keys)
        while frontier:
            for reader in self._readers.get(frontier.pop(), ()):
                if reader not in reached and reader in self._entries:
                    reached.add(reader)
                    frontier.append(reader)
        return reached

    def _drop(self, entry: Entry) -> bool:
        """Whether the pages must wait: for a reader, or for a write that is in flight."""
        if entry.state is ChunkState.RESERVED:
            entry.cancelled = True
            return True
        if entry.num_pins == 0:
            self._remove(entry)
            return False
        self._unlink(entry)
        entry.state = ChunkState.DOOMED
        self._doomed.append(entry)
        return True

    def _make_room(self, num_pages: int) -> bool:
        missing = num_pages - self._pool.num_free
        if missing <= 0:
            return True
        victims: list[Entry] = []
        for key in self._lru:
            if missing <= 0:
                break
            entry = self._entries[key]
            if entry.num_pins == 0:
                victims.append(entry)
                missing -= self._pool.pages_for(entry.num_tokens)
        if missing > 0:
            return False
        for entry in victims:
            self._remove(entry)
            self._evicted.append(entry.key)
        self.stats.evictions += len(victims)
        return True

    def _remove(self, entry: Entry) -> None:
        self._unlink(entry)
        self._pool.give_back(entry.holder)

    def _unlink(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self.generation += 1
        self._lru.pop(entry.key, None)
        scope = scope_of(entry.key)
        self._keys_by_scope[scope].discard(entry.key)
        if not self._keys_by_scope[scope]:
            del self._keys_by_scope[scope]
        for seen in entry.prefix_keys:
            readers = self._readers.get(seen)
            if readers is not None:
                readers.discard(entry.key)
                if not readers:
                    del self._readers[seen]

    def _slots(self, pages: tuple[int, ...], num_tokens: int) -> NDArray[np.int64]:
        return self._rows(np.asarray(pages, dtype=np.int64))[:num_tokens]

    def _rows(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = pages[:, None] * self._pool.page_tokens + self._page_offsets
        return rows.reshape(-1)
