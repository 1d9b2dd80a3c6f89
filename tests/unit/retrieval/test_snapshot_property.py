"""However a user's memory was reached, its chunks are those of the live facts alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inferscale_core.ids import ChunkKey
from inferscale_core.memory.canonical import ChunkSpec
from inferscale_core.memory.recipes import FactOrder, PrefixFacts
from inferscale_core.memory.waves import next_wave
from inferscale_core.retrieval import (
    ChunkRules,
    FactEntry,
    SearchDevice,
    TurnEntry,
    UserSnapshot,
)
from tests.unit.retrieval.factories import DIMENSION, delta, empty, fact, recipe, rules, turn

_rules = st.builds(
    rules,
    st.one_of(
        st.builds(
            recipe,
            num_neighbours=st.integers(1, 4),
            num_recent=st.integers(0, 3),
            newest_facts=st.one_of(st.none(), st.integers(1, 4)),
            chapter=st.one_of(st.none(), st.integers(2, 6)),
            max_depth=st.one_of(st.none(), st.integers(2, 3)),
            fact_order=st.sampled_from(FactOrder),
            num_turns=st.integers(0, 2),
        ),
        st.builds(
            recipe,
            num_neighbours=st.integers(0, 3),
            num_recent=st.integers(0, 2),
            newest_facts=st.one_of(st.none(), st.integers(1, 4)),
            chapter=st.one_of(st.none(), st.integers(2, 6)),
            facts_as=st.just(PrefixFacts.TEXT),
        ),
        st.builds(
            recipe,
            num_neighbours=st.just(0),
            running_sequence=st.just(True),
            newest_facts=st.one_of(st.none(), st.integers(1, 4)),
            chapter=st.one_of(st.none(), st.integers(2, 6)),
        ),
        st.builds(
            recipe,
            num_neighbours=st.just(0),
            num_turns=st.integers(0, 4),
            with_header=st.booleans(),
        ),
    ),
    max_prompt_tokens=st.sampled_from([13, 17, 1000]),
)

_step = st.tuples(
    st.sampled_from(["add", "add", "add", "update", "delete", "turn", "delete_turn"]),
    st.integers(0, 30),
    st.sampled_from([1, 2, 3, 9]),
)
_batches = st.lists(st.lists(_step, min_size=1, max_size=5), min_size=1, max_size=12)


@dataclass
class History:
    """The live facts and turns after some writes, and what changed since the last `take`."""

    version: int = 0
    facts: dict[str, FactEntry] = field(default_factory=dict)
    turns: dict[str, TurnEntry] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    created: int = 0

    def write(self, kind: str, pick: int, num_tokens: int) -> None:
        self.version += 1
        if kind == "add":
            self._add(pick, num_tokens)
        elif kind == "turn":
            self._add_turn()
        elif kind == "delete_turn" and self.turns:
            self._forget(self.turns, pick)
        elif kind == "delete" and self.facts:
            self._forget(self.facts, pick)
        elif kind == "update" and self.facts:
            self._update(pick, num_tokens)

    def _add(self, pick: int, num_tokens: int) -> None:
        self.created += 1
        # Ids that do not sort in order of arrival.
        fact_id = f"f{self.created * 7 % 31:02}-{self.created}"
        sources = tuple(sorted(self.turns))[pick % 5 : pick % 5 + 1]
        self.facts[fact_id] = fact(fact_id, self.version, num_tokens=num_tokens, turn_ids=sources)
        self.touched.add(fact_id)

    def _add_turn(self) -> None:
        self.created += 1
        turn_id = f"t{self.created:03}"
        self.turns[turn_id] = turn(turn_id, self.created, talk=f"talk{self.created % 2}")
        self.touched.add(turn_id)

    def _update(self, pick: int, num_tokens: int) -> None:
        fact_id = sorted(self.facts)[pick % len(self.facts)]
        revision = self.facts[fact_id].ref.revision + 1
        self.facts[fact_id] = fact(fact_id, self.version, revision=revision, num_tokens=num_tokens)
        self.touched.add(fact_id)

    def _forget(self, live: dict[str, FactEntry] | dict[str, TurnEntry], pick: int) -> None:
        identifier = sorted(live)[pick % len(live)]
        del live[identifier]
        self.touched.add(identifier)

    def take(self, snapshot: UserSnapshot) -> UserSnapshot:
        """The snapshot after everything written since the last take."""
        touched, self.touched = self.touched, set()
        return snapshot.apply(
            delta(
                [self.facts[i] for i in sorted(touched) if i in self.facts],
                version=self.version,
                removed=[i for i in touched if i[0] == "f" and i not in self.facts],
                turns=[self.turns[i] for i in sorted(touched) if i in self.turns],
                removed_turns=[i for i in touched if i[0] == "t" and i not in self.turns],
            )
        )

    def from_scratch(self, of: ChunkRules) -> UserSnapshot:
        return empty(of).apply(
            delta(self.facts.values(), version=self.version, turns=self.turns.values())
        )


@settings(max_examples=200, deadline=None)
@given(of=_rules, batches=_batches)
def test_step_by_step_gives_what_the_live_facts_give_at_once(
    of: ChunkRules, batches: list[list[tuple[str, int, int]]]
) -> None:
    history = History()
    # A device with room for one version's rows of this user.
    snapshot = empty(of, SearchDevice(torch.device("cpu"), 2 * 64 * DIMENSION * 4))
    for batch in batches:
        for step in batch:
            history.write(*step)
        snapshot = history.take(snapshot)
        expected = history.from_scratch(of)
        assert list(snapshot.specs.items()) == list(expected.specs.items())
        assert list(snapshot.facts.items()) == list(expected.facts.items())
        assert snapshot.vectors.ids == expected.vectors.ids
        assert bool((snapshot.vectors.matrix == expected.vectors.matrix).all())
        assert torch.equal(snapshot.vectors.on_device(), expected.vectors.matrix)


@settings(max_examples=100, deadline=None)
@given(
    of=_rules,
    sizes=st.lists(st.sampled_from([1, 2, 9]), min_size=2, max_size=14),
    pick=st.integers(0, 20),
)
def test_a_user_whose_fact_was_deleted_equals_one_who_never_had_it(
    of: ChunkRules, sizes: list[int], pick: int
) -> None:
    facts = [fact(f"f{n * 5 % 17:02}", n + 1, num_tokens=size) for n, size in enumerate(sizes)]
    gone = facts[pick % len(facts)]
    deleted = empty(of).apply(delta(facts)).apply(delta(version=99, removed=[gone.fact_id]))
    never = empty(of).apply(delta([f for f in facts if f is not gone], version=99))
    assert deleted.specs == never.specs


@settings(max_examples=100, deadline=None)
@given(of=_rules, steps=st.lists(_step, min_size=8, max_size=40), pick=st.integers(0, 40))
def test_a_delete_changes_no_chunk_of_another_chapter(
    of: ChunkRules, steps: list[tuple[str, int, int]], pick: int
) -> None:
    of = replace(of, recipe=replace(of.recipe, chapter=6))
    history = History()
    for step in steps:
        history.write(*step)
    before = history.take(empty(of))
    if not before.facts:
        return
    gone = before.facts[sorted(before.facts)[pick % len(before.facts)]]
    after = before.apply(delta(version=history.version + 1, removed=[gone.fact_id]))
    changed = {i for i, spec in after.specs.items() if before.specs[i].key != spec.key}
    assert {after.facts[i].memory_version // 6 for i in changed} <= {gone.memory_version // 6}
    assert len(changed) < 6


def encode(spec: ChunkSpec, contents: dict[ChunkKey, str], tokens: tuple[int, ...]) -> str:
    """Stands for what the engine computes: a function of the prefix's contents and the tokens."""
    seen = [contents[key] for key in spec.prefix_keys] or list(map(str, spec.prefix_facts))
    return hashlib.sha256(repr((seen, spec.turn_ids, spec.fact, tokens)).encode()).hexdigest()


@settings(max_examples=100, deadline=None)
@given(of=_rules, sizes=st.lists(st.sampled_from([1, 2, 9]), min_size=1, max_size=14))
def test_waves_give_what_encoding_one_by_one_as_facts_arrive_gives(
    of: ChunkRules, sizes: list[int]
) -> None:
    facts = [
        fact(f"f{n * 5 % 17:02}", n + 1, num_tokens=size, turn_ids=(f"t{n}",))
        for n, size in enumerate(sizes)
    ]
    turns = [turn(f"t{n}", n) for n in range(len(sizes))]

    one_by_one: dict[ChunkKey, str] = {}
    arriving = empty(of).apply(delta(version=1, turns=turns))
    for entry in facts:
        arriving = arriving.apply(delta([entry]))
        spec = arriving.spec_of(entry.fact_id)
        if spec is not None:
            one_by_one[spec.key] = encode(spec, one_by_one, entry.token_ids)

    by_waves: dict[ChunkKey, str] = {}
    at_once = empty(of).apply(delta(facts, turns=turns))
    num_waves = 0
    while wave := next_wave(at_once.specs.values(), by_waves):
        num_waves += 1
        by_waves |= {
            spec.key: encode(spec, by_waves, at_once.facts[spec.fact.fact_id].token_ids)
            for spec in wave
        }
    assert by_waves == one_by_one
    assert num_waves == max((spec.depth for spec in at_once.specs.values()), default=0)
    assert num_waves <= (of.recipe.max_depth or len(facts))
