"""Hit rate of the chunk directory under a skewed load: `python -m benchmarks.hit_rate`.

Many users of many tenants, some far more active than others, with more chunks than fit into the
arena. Each chat asks for the facts nearest to a question: a few that a user often asks for, and a
tail. What is missing is encoded and stored, as a worker does. No engine: only the directory decides
here, so every figure is the same on any machine.

Compared with ours: `lru` gives up what was used longest ago, `lfu` what was used least often so
far, and `oracle` what is used again latest, which it knows; no policy of equal sizes does better.
`tenant_share` is a load in which one tenant floods the arena with facts that nobody asks for twice.
"""

from __future__ import annotations

import argparse
import heapq
import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.rows import CPU_RESULTS, make_rows, replace_rows
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.pages import PagePool
from inferscale_core.memory.facts import FactRef

PAGE_TOKENS = 4
K = 20


@dataclass(frozen=True, slots=True)
class Load:
    """requests: for each chat the user and the facts it is about."""

    num_users: int
    num_tenants: int
    facts_per_user: int
    requests: list[list[int]]
    tokens: list[int]
    """Of each fact."""

    @property
    def num_facts(self) -> int:
        return len(self.tokens)

    def tenant_of(self, fact: int) -> int:
        return (fact // self.facts_per_user) % self.num_tenants


def skewed_load(
    *,
    num_users: int = 400,
    num_tenants: int = 20,
    facts_per_user: int = 100,
    num_chats: int = 20_000,
    user_skew: float = 1.0,
    fact_skew: float = 0.8,
    drift_every: int = 5_000,
    seed: int = 1,
) -> Load:
    """Users and, within a user, facts by Zipf's law. Which users are active changes over time."""
    rng = np.random.default_rng(seed)
    user_share = zipf(num_users, user_skew)
    fact_share = zipf(facts_per_user, fact_skew)
    orders = [rng.permutation(facts_per_user) for _ in range(num_users)]
    who = rng.permutation(num_users)
    requests = []
    for number in range(num_chats):
        if number % drift_every == drift_every - 1:
            moved = rng.permutation(num_users)[: num_users // 4]
            who[moved] = who[rng.permutation(moved)]
        user = int(who[rng.choice(num_users, p=user_share)])
        ranks = rng.choice(facts_per_user, size=K, replace=False, p=fact_share)
        requests.append([user * facts_per_user + int(orders[user][rank]) for rank in ranks])
    tokens = rng.integers(12, 60, num_users * facts_per_user).tolist()
    return Load(num_users, num_tenants, facts_per_user, requests, tokens)


def zipf(count: int, skew: float) -> Any:
    weights = 1.0 / np.arange(1, count + 1) ** skew
    return weights / weights.sum()


class Policy(Protocol):
    def ask(self, fact: int) -> bool:
        """Whether it is a hit; what is missing is stored."""


class Ours:
    """The directory itself."""

    def __init__(self, load: Load, num_pages: int, tenant_share: float = 1.0) -> None:
        self.directory = ChunkDirectory(PagePool(num_pages, PAGE_TOKENS), tenant_share=tenant_share)
        self._load = load
        self._keys = [
            ChunkKey(f"tenant-{load.tenant_of(fact)}/user-{fact // load.facts_per_user}/{fact}")
            for fact in range(load.num_facts)
        ]

    def ask(self, fact: int) -> bool:
        entry = self.directory.get(self._keys[fact])
        if entry is not None:
            self.directory.end_read(self.directory.read([entry]))
            return True
        entry = self.directory.reserve(
            self._keys[fact],
            self._load.tokens[fact],
            origin=0,
            fact=FactRef(FactId(str(fact)), 1),
            prefix_keys=(),
        )
        if entry is not None:
            self.directory.publish(entry)
        self.directory.drain_moved()
        self.directory.gpu.drain_freed()
        self.directory.drain_to_zero()
        return False


class Lru:
    def __init__(self, load: Load, num_pages: int) -> None:
        self._pages = [-(-count // PAGE_TOKENS) for count in load.tokens]
        self._free = num_pages
        self._held: OrderedDict[int, None] = OrderedDict()

    def ask(self, fact: int) -> bool:
        if fact in self._held:
            self._held.move_to_end(fact)
            return True
        while self._free < self._pages[fact]:
            victim, _ = self._held.popitem(last=False)
            self._free += self._pages[victim]
        self._held[fact] = None
        self._free -= self._pages[fact]
        return False


class Ranked(ABC):
    """What has the least rank goes. A fact's rank is set anew with every use."""

    def __init__(self, load: Load, num_pages: int) -> None:
        self._pages = [-(-count // PAGE_TOKENS) for count in load.tokens]
        self._free = num_pages
        self._rank: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def ask(self, fact: int) -> bool:
        is_hit = fact in self._rank
        while not is_hit and self._free < self._pages[fact]:
            rank, victim = heapq.heappop(self._heap)
            if self._rank.get(victim) == rank:
                del self._rank[victim]
                self._free += self._pages[victim]
        if not is_hit:
            self._free -= self._pages[fact]
        self._rank[fact] = self.next_rank(fact)
        heapq.heappush(self._heap, (self._rank[fact], fact))
        return is_hit

    @abstractmethod
    def next_rank(self, fact: int) -> float:
        """Of a fact that is asked for now."""


class Lfu(Ranked):
    def __init__(self, load: Load, num_pages: int) -> None:
        super().__init__(load, num_pages)
        self._uses: Counter[int] = Counter()

    def next_rank(self, fact: int) -> float:
        self._uses[fact] += 1
        return float(self._uses[fact])


class Oracle(Ranked):
    """Belady: gives up what is used again latest."""

    def __init__(self, load: Load, num_pages: int) -> None:
        super().__init__(load, num_pages)
        self._now = 0
        self._times: dict[int, list[int]] = {}
        for time_, fact in enumerate(fact for request in load.requests for fact in request):
            self._times.setdefault(fact, []).append(time_)
        for times in self._times.values():
            times.reverse()

    def next_rank(self, fact: int) -> float:
        times = self._times[fact]
        times.pop()
        return -float(times[-1] if times else 1 << 60)


def hit_ratio(policy: Policy, load: Load) -> float:
    """Of the second half of the load: by then the arena is full."""
    hits = asked = 0
    for number, request in enumerate(load.requests):
        for fact in request:
            is_hit = policy.ask(fact)
            if number >= len(load.requests) // 2:
                hits += is_hit
                asked += 1
    return hits / asked


def pages_of(load: Load, ratio: float) -> int:
    """An arena that holds this share of all facts."""
    return int(sum(-(-count // PAGE_TOKENS) for count in load.tokens) * ratio)


def skewed_figures() -> Iterator[dict[str, Any]]:
    load = skewed_load()
    for ratio in (0.05, 0.1, 0.2, 0.4):
        pages = pages_of(load, ratio)
        started = time.perf_counter()
        ours = hit_ratio(Ours(load, pages), load)
        us_per_ask = (time.perf_counter() - started) / (len(load.requests) * K) * 1e6
        yield {
            "arena_ratio": ratio,
            "facts": load.num_facts,
            "users": load.num_users,
            "ours": round(ours, 4),
            "lru": round(hit_ratio(Lru(load, pages), load), 4),
            "lfu": round(hit_ratio(Lfu(load, pages), load), 4),
            "oracle": round(hit_ratio(Oracle(load, pages), load), 4),
            "us_per_ask": round(us_per_ask, 1),
        }


def flooded(load: Load, per_chat: int) -> Load:
    """Behind every chat so many facts of one tenant that nobody asks for again."""
    first = load.num_facts
    total = first + per_chat * len(load.requests)
    requests = []
    for number, request in enumerate(load.requests):
        start = first + number * per_chat
        requests += [request, list(range(start, start + per_chat))]
    return Load(
        load.num_users,
        load.num_tenants,
        load.facts_per_user,
        requests,
        [*load.tokens, *([30] * (total - first))],
    )


class Flooded(Ours):
    """The flood is a tenant of its own."""

    def __init__(self, load: Load, num_facts: int, num_pages: int, tenant_share: float) -> None:
        super().__init__(load, num_pages, tenant_share)
        self._keys[num_facts:] = [
            ChunkKey(f"flood/user/{fact}") for fact in range(num_facts, load.num_facts)
        ]


def others_hit_ratio(policy: Policy, load: Load, num_facts: int) -> float:
    hits = asked = 0
    for number, request in enumerate(load.requests):
        for fact in request:
            is_hit = policy.ask(fact)
            if fact < num_facts and number >= len(load.requests) // 2:
                hits += is_hit
                asked += 1
    return hits / asked


def tenant_figures() -> Iterator[dict[str, Any]]:
    quiet = skewed_load(num_chats=8_000)
    pages = pages_of(quiet, 0.2)
    load = flooded(quiet, per_chat=40)
    alone = hit_ratio(Ours(quiet, pages), quiet)
    for share in (1.0, 0.5, 0.2, 0.1):
        policy = Flooded(load, quiet.num_facts, pages, share)
        yield {
            "tenant_share": share,
            "arena_ratio": 0.2,
            "others_alone": round(alone, 4),
            "others": round(others_hit_ratio(policy, load, quiet.num_facts), 4),
            "others_lru": round(others_hit_ratio(Lru(load, pages), load, quiet.num_facts), 4),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into benchmarks/results/cpu.json")
    arguments = parser.parse_args()
    for benchmark, figures in (
        ("hit_rate", skewed_figures()),
        ("tenant_share", tenant_figures()),
    ):
        found = []
        for figure in figures:
            print(benchmark, figure, flush=True)
            found.append(figure)
        if arguments.write:
            replace_rows(make_rows(benchmark, found), CPU_RESULTS)


if __name__ == "__main__":
    main()
