"""Which part of a long question is searched for."""

from __future__ import annotations

import pytest

from inferscale_core.embedding import Embedder, load_embedder, text_end
from inferscale_core.settings import EmbedderSettings

FACTS = (
    "Robin is allergic to peanuts.",
    "Robin's sister Freja lives in Bologna.",
    "Robin plays the cello on Tuesdays.",
    "Robin keeps the spare key under the blue pot.",
    "Robin drives a green Volvo.",
)
LONG = "Please consider this carefully. " * 120


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(EmbedderSettings(device="cpu"))


def nearest(embedder: Embedder, text: str) -> str:
    scores = embedder.embed(FACTS) @ embedder.embed([text])[0]
    return FACTS[int(scores.argmax())]


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("Can I have a peanut cookie?", FACTS[0]),
        ("Where is the spare key?", FACTS[3]),
        ("Which car do I drive?", FACTS[4]),
    ],
)
def test_a_question_at_the_end_of_a_long_message_finds_what_it_finds_alone(
    embedder: Embedder, question: str, fact: str
) -> None:
    end = text_end(embedder, LONG + question)
    assert end.text.endswith(question)
    assert nearest(embedder, end.text) == nearest(embedder, question) == fact


def test_the_end_fills_the_window_and_begins_with_a_word(embedder: Embedder) -> None:
    end = text_end(embedder, LONG + "Where?")
    assert embedder.max_tokens - 8 <= end.num_tokens <= embedder.max_tokens
    assert end.num_tokens == embedder.count_tokens(end.text)
    assert end.of_tokens == embedder.count_tokens(LONG + "Where?")
    assert not end.is_whole
    assert end.text.split()[0] in LONG.split()


def test_a_text_that_fits_is_searched_for_as_it_is(embedder: Embedder) -> None:
    text = "peanut " * (embedder.max_tokens - 2)
    end = text_end(embedder, text)
    assert (end.text, end.num_tokens, end.is_whole) == (text, embedder.max_tokens, True)
    assert not text_end(embedder, text + "cookie").is_whole


@pytest.mark.parametrize(
    "text",
    ["花生" * 3_000, "x" * 100_000 + " " + "pea nut " * 300, "pea nut " * 300 + "\n" * 20_000],
    ids=["no spaces", "one long word", "white space at the end"],
)
def test_unusual_texts_keep_their_end(embedder: Embedder, text: str) -> None:
    end = text_end(embedder, text)
    assert text.rstrip().endswith(end.text)
    assert embedder.max_tokens // 2 < end.num_tokens <= embedder.max_tokens
