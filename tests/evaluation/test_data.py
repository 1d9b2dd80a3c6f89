from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import RECIPES, Recipe
from services.evaluation import __main__ as command
from services.evaluation.dataset import (
    Conversation,
    DatasetFact,
    DatasetTurn,
    Part,
    Question,
    first_questions,
    part_by_name,
)
from services.evaluation.locomo import load_locomo
from services.evaluation.prepared import PreparedVectors, load, prepare, save
from services.evaluation.retold import as_one_user, retold
from services.evaluation.squad import token_f1
from tests.evaluation.conversations import conversation, write_conversations
from tests.worker.control import WordEmbedder


def test_a_conversation_gives_turns_dated_facts_and_the_questions_that_have_an_answer(
    tmp_path: Path,
) -> None:
    first, second = load_locomo(write_conversations(tmp_path))
    assert (first.name, second.name) == ("1", "2")
    assert [turn.turn_id for turn in first.turns] == [
        *(f"D1:{n}" for n in range(1, 6)),
        *(f"D2:{n}" for n in range(1, 5)),
    ]
    assert first.turns[5].text.endswith(
        "a green one. (shows a picture: a green wooden box on a roof)"
    )
    assert [fact.turn_ids for fact in first.facts[:4]] == [
        ("D1:1",),
        ("D1:5", "D1:2"),
        ("D1:3",),
        ("D1:2", "D1:4"),
    ]
    assert first.facts[0].occurred_at == datetime(2024, 2, 3, 9, 5, tzinfo=UTC)
    assert [question.category for question in first.questions] == [4, 2, 1, 3]
    assert first.questions[2].answer == "5"


def test_a_conversation_is_told_of_other_people(tmp_path: Path) -> None:
    first = load_locomo(write_conversations(tmp_path))[0]
    speakers = {turn.speaker for turn in first.turns}
    told = [list(retold(first, number)) for number in range(8)]
    assert len({fact.text for facts in told[:7] for fact in facts}) == 7 * len(first.facts)
    assert told[7] == told[0]
    for fact, other in zip(first.facts, told[3], strict=True):
        assert not any(name in other.text for name in speakers)
        assert (other.occurred_at, other.turn_ids) == (fact.occurred_at, ())


def talk(name: str, speakers: tuple[str, str], *texts: str) -> Conversation:
    turns = tuple(DatasetTurn(f"D1:{n}", who, "Hello.") for n, who in enumerate(speakers))
    facts = tuple(DatasetFact(text, None, ()) for text in texts)
    question = Question(f"Who is {speakers[0]}?", f"{speakers[0]}, who knows {speakers[1]}.", 4)
    return Conversation(name, turns, facts, (question,))


def test_names_are_replaced_and_no_parts_of_words() -> None:
    one = talk("1", ("Tim", "Kim"), "Tim's time: Tim and Kim saw Times Square at the same time.")
    [fact] = retold(one, 2)
    assert fact.text == "Lucia's time: Lucia and Anders saw Times Square at the same time."
    told = [fact.text for number in range(8) for fact in retold(one, number)]
    assert not any("Kim" in text for text in told)


def test_one_name_is_one_person() -> None:
    first = talk("1", ("John", "Ada"), "John has a dog.", "Ada sings.")
    second = talk("2", ("Eve", "John"), "John has a cat.", "Eve paints.")
    third = talk("3", ("Robin", "Max"), "Robin met Max.")
    one = as_one_user([first, second, third], 5)
    assert [fact.text for fact in one.facts] == [
        "John has a dog.",
        "Ada sings.",
        "Bruno has a cat.",
        "Eve paints.",
        "Stella met Max.",
    ]
    assert [(q.text, q.answer) for q in one.questions] == [
        ("Who is John?", "John, who knows Ada."),
        ("Who is Eve?", "Eve, who knows Bruno."),
        ("Who is Stella?", "Stella, who knows Max."),
    ]


@pytest.mark.parametrize("num_facts", [16, 17, 40, 128])
def test_one_user_is_told_every_conversation_once_as_it_is(tmp_path: Path, num_facts: int) -> None:
    both = load_locomo(write_conversations(tmp_path))
    one = as_one_user(both, num_facts)
    texts = [fact.text for fact in one.facts]
    assert len(texts) == len(set(texts)) == num_facts
    assert {fact.text for conversation in both for fact in conversation.facts} <= set(texts)
    assert one.questions == tuple(question for c in both for question in c.questions)
    assert not one.turns
    assert not any(fact.turn_ids for fact in one.facts)


def test_what_the_questions_are_about_is_spread_over_the_memory(tmp_path: Path) -> None:
    both = load_locomo(write_conversations(tmp_path))
    texts = [fact.text for fact in as_one_user(both, 48).facts]
    places = [texts.index(conversation.facts[0].text) for conversation in both]
    assert places == [0, 24]


@pytest.mark.parametrize(
    ("num_facts", "why"),
    [(0, "fewer than the 16"), (15, "fewer than the 16"), (129, "more than the 128")],
)
def test_one_user_cannot_have_fewer_facts_than_there_are_or_more_than_can_be_told(
    tmp_path: Path, num_facts: int, why: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"one_user: {num_facts} is {why}"):
        as_one_user(load_locomo(write_conversations(tmp_path)), num_facts)


def test_the_first_questions_are_asked_of_their_conversations_alone(tmp_path: Path) -> None:
    both = load_locomo(write_conversations(tmp_path))
    assert first_questions(both, None) == tuple(both)
    for limit, sizes in ((0, []), (3, [3]), (4, [4]), (5, [4, 1]), (99, [4, 4])):
        kept = first_questions(both, limit)
        assert [len(conversation.questions) for conversation in kept] == sizes
        assert all(len(conversation.facts) == 8 for conversation in kept)


def test_parts_hold_every_question_once_and_share_out_conversations_and_categories() -> None:
    questions = tuple(Question(f"Question {n}?", "yes", 1 + n % 2) for n in range(12))
    both = [Conversation(name, (), (), questions) for name in ("1", "2")]
    parts = [Part(number, 3).places(both) for number in (1, 2, 3)]
    assert [len(part) for part in parts] == [8, 8, 8]
    assert frozenset().union(*parts) == {(c.name, n) for c in both for n in range(12)}
    for part in parts:
        kinds = Counter((name, questions[number].category) for name, number in part)
        assert set(kinds.values()) == {2}
    assert Part(1, 1).places(both) == frozenset().union(*parts)


def test_what_is_in_a_part_depends_on_the_questions_and_not_on_their_order() -> None:
    questions = tuple(Question(f"Question {n}?", "yes", 4) for n in range(30))
    there, back = (Conversation("1", (), (), order) for order in (questions, questions[::-1]))
    chosen = {questions[number].text for _, number in Part(2, 3).places([there])}
    assert chosen == {questions[29 - number].text for _, number in Part(2, 3).places([back])}
    assert chosen != {question.text for question in questions[1::3]}


@pytest.mark.parametrize("name", ["0/3", "4/3", "1", "a/b", "-1/3", "1/3/3", ""])
def test_a_part_that_is_none_is_refused(name: str) -> None:
    assert part_by_name("3/3") == Part(3, 3)
    with pytest.raises(InvalidInput, match=r"1/3"):
        part_by_name(name)


def test_a_fact_that_is_stated_twice_is_one_fact(tmp_path: Path) -> None:
    body = conversation("Ines", "Otto", "counts hives")
    body["session_2_observation"]["Ines"].append(["Ines lives in a flat above the bakery.", "D2:2"])
    (tmp_path / "1.json").write_text(json.dumps(body))
    (only,) = load_locomo(tmp_path)
    assert [fact.text for fact in only.facts].count("Ines lives in a flat above the bakery.") == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"qa": [{"category": 1}]}'])
def test_a_file_that_is_no_conversation_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"odd.json is no conversation"):
        load_locomo(tmp_path)


def test_a_folder_without_conversations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no"):
        load_locomo(tmp_path)


def test_one_user_is_prepared_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "load_embedder", lambda settings: WordEmbedder())
    data, out = write_conversations(tmp_path / "data"), tmp_path / "one.npz"
    prepare_one = ["prepare", "--data", str(data), "--out", str(out), "--one-user"]
    assert command.main([*prepare_one, "40"]) == 0
    prepared = load(out)
    [one] = prepared.conversations
    assert (len(one.facts), len(one.questions)) == (40, 8)
    assert len(prepared.vectors) == len(prepared.row_by_text) >= 40
    assert command.main([*prepare_one, "3"]) == 1
    assert "one_user: 3 is fewer than the 16 facts" in capsys.readouterr().err


def test_a_recipe_that_sees_turns_is_refused_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "load_embedder", lambda settings: WordEmbedder())
    one = as_one_user(load_locomo(write_conversations(tmp_path / "data")), 16)
    save(prepare([one], [RECIPES["window-5"]], WordEmbedder()), tmp_path / "one.npz")
    asked = ["locomo", "--direct", "--prepared", str(tmp_path / "one.npz"), "--model", "none"]
    assert command.main([*asked, "--recipes", "window-5", "--out", str(tmp_path / "scores")]) == 1
    assert "recipes: window-5 sees turns, and the data has none" in capsys.readouterr().err


def test_what_was_prepared_travels_in_a_file_with_its_vectors(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    bare = Recipe("bare", dated_fact="{text}")
    conversations = load_locomo(write_conversations(tmp_path / "data"))
    prepared = prepare(conversations, [RECIPES["progressive-32"], bare], embedder)
    save(prepared, tmp_path / "prepared.npz")
    loaded = load(tmp_path / "prepared.npz")
    assert loaded.conversations == tuple(conversations)
    assert loaded.digest == prepared.digest
    fact = conversations[0].facts[0]
    texts = [bare.render(fact.text, fact.occurred_at), conversations[1].questions[0].text]
    assert np.array_equal(PreparedVectors(loaded).embed(texts), embedder.embed(texts))
    assert PreparedVectors(loaded).identity == embedder.identity


def test_a_text_that_was_not_prepared_is_refused_and_not_shown(tmp_path: Path) -> None:
    prepared = prepare(
        load_locomo(write_conversations(tmp_path)), [RECIPES["progressive-32"]], WordEmbedder()
    )
    with pytest.raises(InvalidInput, match="made for another wording") as refused:
        PreparedVectors(prepared).embed(["what Ines never said"])
    assert "Ines" not in str(refused.value)


def test_a_file_that_was_not_prepared_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    path.write_bytes(b"odd")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(path)


@pytest.mark.parametrize(
    ("said", "gold", "f1"),
    [
        ("Basil", "Basil", 1.0),
        ("The cat, Basil!", "a cat basil", 1.0),
        ("7 May 2023", "May 7, 2023", 1.0),
        ("in May", "May 2023", 0.5),
        ("a cat", "a dog", 0.0),
        ("bees bees", "bees", 2 / 3),
        ("the", "an", 1.0),
        ("", "Basil", 0.0),
    ],
)
def test_token_f1_looks_at_words_only(said: str, gold: str, f1: float) -> None:
    assert token_f1(said, gold) == pytest.approx(f1)
