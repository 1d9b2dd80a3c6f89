"""The study of bounds counts what the service would do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
import torch

from benchmarks.cascade import (
    EncodeRate,
    User,
    encode_for_a_minute,
    measure,
    recipe_for,
    seen_of_others,
    statements,
)
from inferscale_core.ids import ChunkKey
from inferscale_core.memory.recipes import Recipe
from services.evaluation.dataset import Conversation, DatasetFact, DatasetTurn

RATE = EncodeRate(wave_ms=10.0, facts_per_s=1000.0, text_tokens_per_s=1000.0)
MAY = datetime(2025, 5, 8, tzinfo=UTC)


def user(count: int, recipe: Recipe) -> User:
    vectors = torch.nn.functional.normalize(
        torch.randn(count, 16, generator=torch.Generator().manual_seed(1)), dim=1
    )
    return User([f"line {i}" for i in range(count)], [5] * count, vectors, recipe)


def conversation(name: str, speakers: Sequence[str], count: int) -> Conversation:
    turns = tuple(DatasetTurn(f"D1:{i}", speaker, "Hello") for i, speaker in enumerate(speakers))
    facts = tuple(DatasetFact(f"{speakers[i % 2]} did {name}.{i}", MAY, ()) for i in range(count))
    return Conversation(name, turns, facts, ())


def test_without_a_bound_a_change_of_the_first_fact_reaches_all() -> None:
    one = user(8, recipe_for(8))
    before = {spec.key for spec in one.snapshot.specs.values()}
    one._rng.choice = lambda facts: facts[0]  # type: ignore[method-assign]
    one.update()
    assert before.isdisjoint({spec.key for spec in one.snapshot.specs.values()})


def test_an_updated_fact_is_a_little_off_and_stands_last() -> None:
    one = user(20, recipe_for(4))
    old = dict(one.vector_by_id)
    fact_id = one.update()
    assert list(one.snapshot.facts)[-1] == fact_id
    assert float(old[fact_id] @ one.vector_by_id[fact_id]) == pytest.approx(0.95, abs=1e-4)


def test_a_minute_is_long_enough_or_leaves_the_rest_missing() -> None:
    snapshot = user(6, recipe_for(8)).snapshot
    resident: set[ChunkKey] = set()
    whole = encode_for_a_minute(snapshot, resident, RATE)
    assert (whole.num_waves, whole.text_tokens) == (6, 0)
    assert whole.busy_s == pytest.approx(0.06)
    assert whole.fact_seconds == pytest.approx(0.01 * (6 + 5 + 4 + 3 + 2 + 1))
    assert len(resident) == 6
    resident = set()
    slow = encode_for_a_minute(snapshot, resident, EncodeRate(25_000.0, 1000.0, 1000.0))
    assert (slow.num_waves, slow.busy_s, len(resident)) == (2, 60.0, 2)
    assert slow.fact_seconds == pytest.approx(25 * 6 + 25 * 5 + 10 * 4)


def test_what_is_seen_as_text_takes_its_time() -> None:
    snapshot = user(6, recipe_for(8, depth=2)).snapshot
    whole = encode_for_a_minute(snapshot, set(), RATE)
    seen = [s for s in snapshot.specs.values() if s.prefix_facts and not s.prefix_keys]
    assert seen
    assert whole.text_tokens == 5 * sum(len(spec.prefix_facts) for spec in seen)
    assert whole.busy_s > whole.text_tokens / RATE.text_tokens_per_s


def test_a_bound_makes_chains_short_and_changes_small() -> None:
    free = measure(user(60, recipe_for(6)), 5, RATE)
    short = measure(user(60, recipe_for(6, depth=3)), 5, RATE)
    assert short["depth"] <= 3 < free["depth"]
    assert short["update_closure"] < free["update_closure"]
    assert (free["see_text"], free["still_missing"]) == (0, 0)
    assert short["see_text"] > 0


def test_chapters_keep_a_change_inside_and_begin_with_facts_that_see_few() -> None:
    free = user(60, recipe_for(6))
    chapters = user(60, recipe_for(6, chapter=20))
    assert seen_of_others(free)["see_few"] == pytest.approx(3 / 60, abs=1e-4)
    # Versions 1..60: the last one begins a fourth chapter.
    assert seen_of_others(chapters)["see_few"] == pytest.approx((3 * 3 + 1) / 60, abs=1e-4)
    assert seen_of_others(chapters)["similarity"] < seen_of_others(free)["similarity"]
    reached = measure(chapters, 5, RATE)
    assert reached["update_closure_max"] <= 20 / 60
    assert reached["depth"] <= 20
    assert (reached["see_text"], reached["still_missing"]) == (0, 0)


def test_few_facts_are_one_conversation_and_many_are_all_told_of_others() -> None:
    talks = [conversation("1", ("Ann", "Bo"), 6), conversation("2", ("Cy", "Di"), 4)]
    assert [s.text for s in statements(talks, 3)] == ["Ann did 1.0", "Bo did 1.1", "Ann did 1.2"]
    many = statements(talks, 25)
    assert [s.text for s in many[:10]] == [f.text for talk in talks for f in talk.facts]
    retold = [statement.text for statement in many[10:]]
    assert not any(name in text for text in retold for name in ("Ann", "Bo", "Cy", "Di"))
    assert len({s.text for s in many}) == 25
    assert all(statement.occurred_at == MAY for statement in many)


def test_no_facts_are_refused() -> None:
    with pytest.raises(ValueError, match="no conversation has facts"):
        statements([conversation("1", ("Ann", "Bo"), 0)], 3)
