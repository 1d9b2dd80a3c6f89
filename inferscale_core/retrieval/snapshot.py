"""A user's memory at one version, with the chunk that every fact should have.

A snapshot is a function of the live facts and turns alone, however it was reached: a user from
whom a fact was deleted ends with the chunks of a user who never had it. `apply` gets there without
starting over. It chooses neighbours anew only for the new facts and for those that had looked at a
removed one, and follows changed keys through what was encoded behind them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from inferscale_core.ids import ChunkKey, FactId, ModelRevision, TurnId, UserScope
from inferscale_core.memory.canonical import ChunkSpec, chunk_key, dependants
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.recipes import FactOrder, PrefixFacts, Recipe
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
        return self.recipe.with_header

    def prefix_budget(self, fact: FactEntry) -> int:
        """Tokens that earlier facts and turns may take before this encodable fact."""
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
    _considered: of every encodable fact the earlier facts that its prefix should hold, the most
    important first; those that the prompt has no room for are left out of the spec.
    """

    scope: UserScope
    rules: ChunkRules
    memory_version: int
    kv_epoch: int
    facts: Mapping[FactId, FactEntry]
    specs: Mapping[FactId, ChunkSpec]
    vectors: FactVectors
    turns: TurnWindows
    _considered: Mapping[FactId, tuple[FactId, ...]] = field(repr=False)

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
        considered = moved._choose(stale)
        stale |= self._facts_behind_turns(delta, moved)
        specs = moved._specs(considered, self.specs, stale)
        return replace(moved, _considered=considered, specs=specs)

    def spec_of(self, fact_id: FactId) -> ChunkSpec | None:
        """None when the fact is not live or too long to be encoded."""
        return self.specs.get(fact_id)

    def readers_of(self, gone: frozenset[FactId], turn_ids: frozenset[TurnId]) -> set[FactId]:
        """Facts whose chunk here saw one of these facts or turns, directly or through others."""
        saw_turn = {i for i, spec in self.specs.items() if not turn_ids.isdisjoint(spec.turn_ids)}
        return saw_turn | dependants(gone | saw_turn, self.specs.values())

    def prefix_turns(self, spec: ChunkSpec) -> tuple[TurnEntry, ...]:
        return self._window(self.facts[spec.fact.fact_id], spec.prefix_facts)

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
        """Facts that may have to consider other earlier facts now."""
        stale = {i for i in fresh if i in facts}
        stale |= {
            i for i, seen in self._considered.items() if i in facts and not gone.isdisjoint(seen)
        }
        window = self.rules.recipe.newest_facts
        if window is not None:
            # A removal lets every window behind it reach one fact further back.
            order = list(self._considered)
            for place, fact_id in enumerate(order):
                if fact_id in gone:
                    stale.update(i for i in order[place : place + window + 1] if i in facts)
        if fresh:
            first = min(fact.order for fact in fresh.values())
            stale |= {i for i, fact in facts.items() if fact.order > first}
        return {i for i in stale if self.rules.is_encodable(facts[i])}

    def _choose(self, stale: set[FactId]) -> dict[FactId, tuple[FactId, ...]]:
        """Earlier facts for the prefix of every encodable fact, in order; anew for the stale ones.

        Nearest first, then the most recent ones, newest first.
        """
        recipe = self.rules.recipe
        order = [i for i, fact in self.facts.items() if self.rules.is_encodable(fact)]
        begins = self._begins(order)
        nearest = nearest_earlier(
            [i for i in order if i in stale],
            order,
            self.vectors,
            limit=recipe.num_neighbours,
            begins=begins,
            num_skipped=recipe.num_recent,
        )
        return {
            i: nearest[i] + self._recent(order, begins[place], place)
            if i in nearest
            else self._considered[i]
            for place, i in enumerate(order)
        }

    def _begins(self, order: Sequence[FactId]) -> list[int]:
        """For each place the first one whose fact may stand before it."""
        recipe = self.rules.recipe
        versions = [self.facts[fact_id].memory_version for fact_id in order]
        begins = [0] * len(order)
        for place, version in enumerate(versions):
            if recipe.newest_facts is not None:
                begins[place] = max(0, place - recipe.newest_facts)
            if recipe.chapter is not None:
                opening = version - version % recipe.chapter
                begins[place] = max(begins[place], bisect_left(versions, opening))
        return begins

    def _recent(self, order: Sequence[FactId], begin: int, place: int) -> tuple[FactId, ...]:
        """The facts just before a place that the recipe wants, newest first; of a running sequence
        no more than one beyond what the prompt has room for."""
        recipe = self.rules.recipe
        window = place - begin
        if not recipe.running_sequence:
            window = min(window, recipe.num_recent)
        earlier = order[place - window : place][::-1]
        if not recipe.running_sequence:
            return tuple(earlier)
        fact = self.facts[order[place]]
        return tuple(earlier[: len(self._that_fit(fact, earlier)) + 1])

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
        considered: Mapping[FactId, tuple[FactId, ...]],
        old: Mapping[FactId, ChunkSpec],
        stale: set[FactId],
    ) -> dict[FactId, ChunkSpec]:
        """Specs in order: the old one where nothing that it names has changed."""
        specs: dict[FactId, ChunkSpec] = {}
        changed: set[FactId] = set()
        for fact_id, seen in considered.items():
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
        prefix = [specs[i] for i in self._in_prompt_order(self._that_fit(fact, seen))]
        depth = 1 + max((spec.depth for spec in prefix), default=0)
        injected = prefix if self._may_inject(depth) else []
        refs = tuple(spec.fact for spec in prefix)
        turns = self._window(fact, refs)
        header = (self.rules.header_key,) if self.rules.has_header else ()
        key = chunk_key(
            self.scope,
            self.rules.model_revision,
            self.rules.recipe.hash,
            fact.ref,
            fact.token_ids,
            (*header, *(spec.key for spec in injected)),
            [] if injected else [(ref, self.facts[ref.fact_id].token_ids) for ref in refs],
            [(turn.turn_id, turn.token_ids) for turn in turns],
        )
        return ChunkSpec(
            fact=fact.ref,
            key=key,
            prefix_facts=refs,
            prefix_keys=tuple(spec.key for spec in injected),
            turn_ids=tuple(turn.turn_id for turn in turns),
            depth=depth if injected else 1,
        )

    def _may_inject(self, depth: int) -> bool:
        """Whether a chunk of this depth may see earlier facts through their chunks."""
        recipe = self.rules.recipe
        if recipe.facts_as is PrefixFacts.TEXT:
            return False
        return recipe.max_depth is None or depth <= recipe.max_depth

    def _in_prompt_order(self, fitting: list[FactId]) -> list[FactId]:
        """The most important first, as they stand in the prompt."""
        if self.rules.recipe.fact_order is FactOrder.ARRIVAL:
            return sorted(fitting, key=lambda fact_id: self.facts[fact_id].order)
        return fitting[::-1]

    def _that_fit(self, fact: FactEntry, seen: Sequence[FactId]) -> list[FactId]:
        """The first of `seen` that the prompt has room for together."""
        room = self.rules.prefix_budget(fact)
        fitting: list[FactId] = []
        for fact_id in seen:
            room -= len(self.facts[fact_id].token_ids)
            if room < 0:
                break
            fitting.append(fact_id)
        return fitting

    def _window(self, fact: FactEntry, before: Sequence[FactRef]) -> tuple[TurnEntry, ...]:
        """The turns before the fact's source for which the prompt has room behind these facts."""
        taken = sum(len(self.facts[ref.fact_id].token_ids) for ref in before)
        budget = self.rules.prefix_budget(fact) - taken
        return self.turns.before(fact, self.rules.recipe.num_turns, budget)
