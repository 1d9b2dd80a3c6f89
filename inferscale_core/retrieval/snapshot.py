"""A user's memory at one version, with the chunk that every fact should have.

A snapshot is a function of the live facts and turns alone, however it was reached: a user from
whom a fact was deleted ends with the chunks of a user who never had it. `apply` gets there without
starting over. It chooses neighbours anew only for the new facts and for those that had looked at a
removed one, and follows changed keys through what was encoded behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from inferscale_core.ids import ChunkKey, FactId, ModelRevision, UserScope
from inferscale_core.memory.canonical import ChunkSpec, chunk_key
from inferscale_core.memory.recipes import Prefix, Recipe
from inferscale_core.retrieval.delta import FactEntry, MemoryDelta, TurnEntry
from inferscale_core.retrieval.neighbours import nearest_earlier
from inferscale_core.retrieval.rows import SearchDevice
from inferscale_core.retrieval.vectors import FactVectors
from inferscale_core.retrieval.windows import TurnWindows


@dataclass(frozen=True, slots=True)
class ChunkRules:
    """What the chunks of every user of one worker have in common.

    max_prompt_tokens: an encode request holds at most that many; what is farthest from the fact is
    left out of a prefix that would pass it.
    """

    model_revision: ModelRevision
    recipe: Recipe
    header_key: ChunkKey
    header_tokens: int
    max_prompt_tokens: int

    @property
    def has_header(self) -> bool:
        """Whether the header stands before a fact while it is encoded."""
        return self.recipe.prefix is not Prefix.TURNS

    def prefix_budget(self, fact: FactEntry) -> int:
        """Tokens that neighbours or turns of this encodable fact may take."""
        header = self.header_tokens if self.has_header else 0
        return self.max_prompt_tokens - header - len(fact.token_ids)

    @property
    def max_fact_tokens(self) -> int:
        """The longest fact that is encoded: the recipe's limit, or less in a short context."""
        header = self.header_tokens if self.has_header else 0
        return min(self.recipe.max_fact_tokens, self.max_prompt_tokens - header)

    def is_encodable(self, fact: FactEntry) -> bool:
        return len(fact.token_ids) <= self.max_fact_tokens


@dataclass(frozen=True, slots=True)
class UserSnapshot:
    """Immutable; `apply` gives the next one. Safe to read from any thread.

    facts: live facts, earliest first. specs: the chunk of every encodable fact, in the same order.
    """

    scope: UserScope
    rules: ChunkRules
    memory_version: int
    kv_epoch: int
    facts: Mapping[FactId, FactEntry]
    specs: Mapping[FactId, ChunkSpec]
    vectors: FactVectors
    turns: TurnWindows
    _nearest: Mapping[FactId, tuple[FactId, ...]] = field(repr=False)

    @classmethod
    def empty(
        cls, scope: UserScope, rules: ChunkRules, dimension: int, device: SearchDevice
    ) -> UserSnapshot:
        vectors = FactVectors.empty(dimension, device)
        return cls(scope, rules, 0, 0, {}, {}, vectors, TurnWindows(), {})

    def apply(self, delta: MemoryDelta) -> UserSnapshot:
        """The snapshot at the delta's version.

        Raises InvalidInput, and changes nothing, when a vector of the delta cannot be compared.
        """
        fresh = {fact.fact_id: fact for fact in delta.facts}
        gone = {*delta.removed_facts, *fresh} & self.facts.keys()
        kept = {i: fact for i, fact in self.facts.items() if i not in gone}
        live = {**kept, **{i: f for i, f in fresh.items() if i not in delta.removed_facts}}
        facts = dict(sorted(live.items(), key=lambda item: item[1].order))
        moved = replace(
            self,
            memory_version=delta.memory_version,
            kv_epoch=delta.kv_epoch,
            facts=facts,
            vectors=self._next_vectors(delta),
            turns=self.turns.replaced(delta.removed_turns, delta.turns),
        )
        stale = self._stale_after(gone, fresh, facts)
        nearest = moved._choose(stale)
        stale |= self._facts_behind_turns(delta, moved)
        return replace(moved, _nearest=nearest, specs=moved._specs(nearest, self.specs, stale))

    def nearest_facts(self, query: torch.Tensor, limit: int) -> list[tuple[FactEntry, float]]:
        """The `limit` facts most similar to a unit vector, most similar first, with the cosine."""
        return [(self.facts[i], score) for i, score in self.vectors.nearest(query, limit)]

    def spec_of(self, fact_id: FactId) -> ChunkSpec | None:
        """None when the fact is not live or too long to be encoded."""
        return self.specs.get(fact_id)

    def prefix_turns(self, spec: ChunkSpec) -> tuple[TurnEntry, ...]:
        fact = self.facts[spec.fact.fact_id]
        return self._window(fact)

    def _next_vectors(self, delta: MemoryDelta) -> FactVectors:
        ids = [fact.fact_id for fact in delta.facts]
        return self.vectors.replaced((), ids, delta.embeddings).replaced(
            delta.removed_facts, [], None
        )

    def _stale_after(
        self,
        gone: set[FactId],
        fresh: Mapping[FactId, FactEntry],
        facts: Mapping[FactId, FactEntry],
    ) -> set[FactId]:
        """Facts whose nearest earlier facts may be others now."""
        stale = {i for i in fresh if i in facts}
        stale |= {
            i for i, seen in self._nearest.items() if i in facts and not gone.isdisjoint(seen)
        }
        window = self.rules.recipe.newest_facts
        if window is not None:
            # A removal lets every window behind it reach one fact further back.
            order = list(self._nearest)
            for place, fact_id in enumerate(order):
                if fact_id in gone:
                    stale.update(i for i in order[place : place + window + 1] if i in facts)
        if fresh:
            first = min(fact.order for fact in fresh.values())
            stale |= {i for i, fact in facts.items() if fact.order > first}
        return {i for i in stale if self.rules.is_encodable(facts[i])}

    def _choose(self, stale: set[FactId]) -> dict[FactId, tuple[FactId, ...]]:
        """Nearest earlier facts of every encodable fact, in order; anew for the stale ones."""
        recipe = self.rules.recipe
        order = [i for i, fact in self.facts.items() if self.rules.is_encodable(fact)]
        limit = recipe.num_neighbours if recipe.prefix is Prefix.HEADER_AND_NEIGHBOURS else 0
        chosen = nearest_earlier(
            [i for i in order if i in stale],
            order,
            self.vectors,
            limit=limit,
            newest_facts=recipe.newest_facts,
        )
        return {i: chosen[i] if i in chosen else self._nearest[i] for i in order}

    def _facts_behind_turns(self, delta: MemoryDelta, moved: UserSnapshot) -> set[FactId]:
        """Facts of the conversations whose turns changed: their windows may be others now."""
        touched = self.turns.conversations_of(delta.removed_turns)
        touched |= {turn.conversation_id for turn in delta.turns}
        if not touched or not self.rules.recipe.num_turns:
            return set()
        return {
            fact_id
            for fact_id, fact in moved.facts.items()
            if not touched.isdisjoint(self.turns.conversations_of(fact.turn_ids))
            or not touched.isdisjoint(moved.turns.conversations_of(fact.turn_ids))
        }

    def _specs(
        self,
        nearest: Mapping[FactId, tuple[FactId, ...]],
        old: Mapping[FactId, ChunkSpec],
        stale: set[FactId],
    ) -> dict[FactId, ChunkSpec]:
        """Specs in order: the old one where nothing that it names has changed."""
        specs: dict[FactId, ChunkSpec] = {}
        changed: set[FactId] = set()
        for fact_id, seen in nearest.items():
            known = old.get(fact_id)
            if known is not None and fact_id not in stale and changed.isdisjoint(seen):
                specs[fact_id] = known
                continue
            specs[fact_id] = spec = self._spec(self.facts[fact_id], seen, specs)
            if known is None or known.key != spec.key:
                changed.add(fact_id)
        return specs

    def _spec(
        self, fact: FactEntry, seen: tuple[FactId, ...], specs: Mapping[FactId, ChunkSpec]
    ) -> ChunkSpec:
        prefix = [specs[i] for i in self._that_fit(fact, seen)]
        turns = self._window(fact)
        header = (self.rules.header_key,) if self.rules.has_header else ()
        key = chunk_key(
            self.scope,
            self.rules.model_revision,
            self.rules.recipe.hash,
            fact.ref,
            fact.token_ids,
            (*header, *(spec.key for spec in prefix)),
            [(turn.turn_id, turn.token_ids) for turn in turns],
        )
        return ChunkSpec(
            fact=fact.ref,
            key=key,
            prefix_facts=tuple(spec.fact for spec in prefix),
            prefix_keys=tuple(spec.key for spec in prefix),
            turn_ids=tuple(turn.turn_id for turn in turns),
            depth=1 + max((spec.depth for spec in prefix), default=0),
        )

    def _that_fit(self, fact: FactEntry, seen: tuple[FactId, ...]) -> list[FactId]:
        """The nearest of `seen` that the prompt has room for, nearest last."""
        room = self.rules.prefix_budget(fact)
        fitting: list[FactId] = []
        for fact_id in seen:
            room -= len(self.facts[fact_id].token_ids)
            if room < 0:
                break
            fitting.append(fact_id)
        return fitting[::-1]

    def _window(self, fact: FactEntry) -> tuple[TurnEntry, ...]:
        budget = self.rules.prefix_budget(fact)
        return self.turns.before(fact, self.rules.recipe.num_turns, budget)
