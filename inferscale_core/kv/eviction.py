"""Which chunk of a tier gives way when another needs room.

Greedy-dual size frequency, with heat that fades. A place is worth

    clock at its last use  +  heat x cost of having the chunk back / pages

and the one worth least goes; the clock then rises to what it was worth, so that what is not used
any more ages against what is. Having a chunk back means reading a lower tier's copy where there is
one, and encoding it again where there is none: dearer the more tokens it has and the more chunks
saw it, because those need it when they are encoded again.

A use costs nothing here: it makes a place worth more than when it was queued, so that is found out
when its turn comes.

A tenant that holds more than its share of a tier gives way first: its own requests push out its
own chunks, and the requests of others push out its chunks before anybody else's.

Source: Cherkasova, "Improving WWW proxies performance with greedy-dual-size-frequency caching",
HP Labs 1998, section 3 (priority and clock).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

ENCODE_OVERHEAD_TOKENS = 30.0
"""What an encode request costs besides its own tokens, in tokens: a place in a step, a wave."""

READER_COST = 0.25
"""Added to the cost of encoding a chunk again for each chunk that saw it, as a share of it."""

MAX_READERS = 16
"""Readers beyond these add nothing."""

RESTORE_COST = 0.1
"""Reading a lower tier's copy, as a share of encoding again: 4 MB come over the bus in 0.1 ms and
from disk in 1 to 2 ms, and a request's tokens wait for them either way."""

HALF_LIFE = 32.0
"""Heat halves when a chunk was not used while as many others were as the tier holds, so many times
over. `benchmarks.hit_rate` is flat from 32 on and worse below; without fading, users who have gone
would keep their chunks for ever."""


class Candidate(Protocol):
    """A chunk's place in a tier, as far as eviction looks at it."""

    holder: int
    num_pages: int
    clock: float

    @property
    def tenant(self) -> str: ...

    @property
    def heat(self) -> float: ...

    @property
    def cost(self) -> float:
        """Of having the chunk back once this place is given up, in tokens."""


C = TypeVar("C", bound=Candidate)


def encode_cost(num_tokens: int, num_readers: int) -> float:
    """In tokens of prefill."""
    readers = min(num_readers, MAX_READERS)
    return (ENCODE_OVERHEAD_TOKENS + num_tokens) * (1.0 + READER_COST * readers)


class LazyHeap(Generic[C]):
    """Least first, by the priority that was given last. Every operation is O(log n) amortised."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, C]] = []
        self._stamps: dict[int, int] = {}
        self._next_stamp = 0

    def __contains__(self, item: C) -> bool:
        return item.holder in self._stamps

    def __len__(self) -> int:
        return len(self._stamps)

    def push(self, item: C, priority: float) -> None:
        """Add, or move to another priority."""
        self._next_stamp += 1
        self._stamps[item.holder] = self._next_stamp
        heapq.heappush(self._heap, (priority, self._next_stamp, item))
        if len(self._heap) > 2 * len(self._stamps) + 64:
            self._heap = [e for e in self._heap if self._stamps.get(e[2].holder) == e[1]]
            heapq.heapify(self._heap)

    def discard(self, item: C) -> None:
        self._stamps.pop(item.holder, None)

    def pop(self) -> tuple[float, C] | None:
        while self._heap:
            priority, stamp, item = heapq.heappop(self._heap)
            if self._stamps.get(item.holder) == stamp:
                del self._stamps[item.holder]
                return priority, item
        return None


class EvictionQueue(Generic[C]):
    """The places of one tier that may have to give way, and what each tenant holds of it.

    A place is in the order from `add` to `remove`. One that is pinned when its turn comes leaves
    it, is among the `skipped`, and must be given back with `unpinned`. Owned by the scheduler
    thread.
    """

    def __init__(self, num_pages: int, tenant_share: float = 1.0) -> None:
        """tenant_share: ratio of the pages beyond which a tenant's own chunks go first."""
        self._limit = int(num_pages * tenant_share) if tenant_share < 1.0 else None
        self._order: LazyHeap[C] = LazyHeap()
        self._order_by_tenant: dict[str, LazyHeap[C]] = {}
        self._pages_by_tenant: dict[str, int] = {}
        self._over: set[str] = set()
        self.skipped: set[C] = set()
        self.clock = 0.0

    def pages_of(self, tenant: str) -> int:
        return self._pages_by_tenant.get(tenant, 0)

    def took(self, tenant: str, num_pages: int) -> None:
        """The tenant holds so many pages more, or fewer."""
        held = self._pages_by_tenant.get(tenant, 0) + num_pages
        if held:
            self._pages_by_tenant[tenant] = held
        else:
            self._pages_by_tenant.pop(tenant, None)
        if self._limit is not None:
            (self._over.add if held > self._limit else self._over.discard)(tenant)

    def add(self, place: C) -> None:
        """The place may be evicted from now on whenever it is not pinned."""
        place.clock = self.clock
        self._push(place)

    def remove(self, place: C) -> None:
        self.skipped.discard(place)
        self._order.discard(place)
        order = self._order_by_tenant.get(place.tenant)
        if order is not None:
            order.discard(place)
            if not order:
                del self._order_by_tenant[place.tenant]

    def unpinned(self, place: C) -> None:
        """A place that was skipped is not pinned any more."""
        self.skipped.remove(place)
        self._push(place)

    def cheapened(self, place: C) -> None:
        """Having the chunk back has become cheaper: it moves forward in the order."""
        if place in self._order and place not in self.skipped:
            self._push(place)

    def victim(self, tenant: str, num_pages: int, is_pinned: Callable[[C], bool]) -> C | None:
        """The place that gives way so that `tenant` can have `num_pages`; None when all are
        pinned. It leaves the queue."""
        if self._limit is not None:
            if self.pages_of(tenant) + num_pages > self._limit:
                own = self._least(self._order_by_tenant.get(tenant), is_pinned)
                if own is not None:
                    return own
            # At most 1 / share tenants can be over it.
            for other in sorted(self._over, key=self.pages_of, reverse=True):
                found = self._least(self._order_by_tenant.get(other), is_pinned)
                if found is not None:
                    return found
        return self._least(self._order, is_pinned)

    def check(self, evictable: set[int], held: set[int]) -> None:
        """evictable: holders of the places that are not pinned; held: of all places."""
        for order in (self._order, *self._order_by_tenant.values()):
            assert order._stamps.keys() <= held, "a place that is gone is in an order"
        assert evictable <= self._order._stamps.keys(), "an evictable place is not in the order"
        skipped = {place.holder for place in self.skipped}
        assert skipped <= held - evictable, "a skipped place was not given back"
        if self._limit is not None:
            queued = {h for order in self._order_by_tenant.values() for h in order._stamps}
            assert evictable <= queued, "an evictable place is not in its tenant's order"
        assert all(pages > 0 for pages in self._pages_by_tenant.values())

    def _push(self, place: C) -> None:
        worth = self._worth(place)
        self._order.push(place, worth)
        if self._limit is not None:
            self._order_by_tenant.setdefault(place.tenant, LazyHeap()).push(place, worth)

    def _least(self, order: LazyHeap[C] | None, is_pinned: Callable[[C], bool]) -> C | None:
        while order is not None and (found := order.pop()) is not None:
            priority, place = found
            if is_pinned(place):
                self.skipped.add(place)
                continue
            worth = self._worth(place)
            if worth > priority:
                order.push(place, worth)
                continue
            self.clock = max(self.clock, worth)
            self.remove(place)
            return place
        return None

    @staticmethod
    def _worth(place: C) -> float:
        return place.clock + place.heat * place.cost / place.num_pages
