"""The demo's story is consistent: its references resolve and its questions can be answered."""

from __future__ import annotations

from datetime import UTC

import pytest

from examples.story import Story, load_story


@pytest.fixture(scope="module")
def story() -> Story:
    return load_story()


def test_it_is_long_enough_for_k_of_50(story: Story) -> None:
    assert len(story.facts) >= 55
    assert len(story.turns) >= 60


def test_keys_and_turn_ids_are_unique(story: Story) -> None:
    assert len({fact.key for fact in story.facts}) == len(story.facts)
    assert len({fact.text for fact in story.facts}) == len(story.facts)
    assert len({turn.turn_id for turn in story.turns}) == len(story.turns)


def test_every_fact_comes_from_a_turn_of_its_own_time(story: Story) -> None:
    turn_by_id = {turn.turn_id: turn for turn in story.turns}
    for fact in story.facts:
        assert fact.turn_ids
        assert all(turn_by_id[turn_id].occurred_at == fact.occurred_at for turn_id in fact.turn_ids)
        assert fact.occurred_at.tzinfo == UTC


def test_turns_and_facts_are_in_order_of_time(story: Story) -> None:
    assert list(story.turns) == sorted(story.turns, key=lambda turn: turn.occurred_at)
    assert list(story.facts) == sorted(story.facts, key=lambda fact: fact.occurred_at)


def test_the_facts_that_answer_a_question_hold_the_expected_words(story: Story) -> None:
    text_by_key = {fact.key: fact.text for fact in story.facts}
    assert len(story.questions) == 5
    for question in story.questions:
        known = " ".join(text_by_key[key] for key in question.answered_by)
        assert question.is_answered_in(known), question.text


def test_the_wide_question_touches_many_facts(story: Story) -> None:
    keys = {fact.key for fact in story.facts}
    assert len(story.wide_question.answered_by) >= 8
    assert set(story.wide_question.answered_by) <= keys


def test_the_update_changes_the_answer_to_its_question(story: Story) -> None:
    (old,) = [fact for fact in story.facts if fact.key == story.update.key]
    assert story.update.question.is_answered_in(story.update.text)
    assert not story.update.question.is_answered_in(old.text)
    assert story.update.occurred_at > old.occurred_at
