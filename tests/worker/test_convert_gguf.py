"""A tokenizer that fell apart in conversion is refused before a model is served with it."""

from __future__ import annotations

import pytest

from services.worker.convert_gguf import require_words


class Words:
    """One token for each word, and one for what stands between."""

    def __init__(self) -> None:
        self._seen: list[str] = []

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens, "these would be no words"
        self._seen = text.split()
        return [*range(len(self._seen))]

    def decode(self, ids: list[int]) -> str:
        return " ".join(self._seen[i] for i in ids)


class Letters:
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [*map(ord, text)]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


class Unknown(Words):
    def decode(self, ids: list[int]) -> str:
        return "<unk>" * len(ids)


def test_a_tokenizer_that_knows_words_is_taken() -> None:
    require_words(Words())


@pytest.mark.parametrize("tokenizer", [Letters(), Unknown()])
def test_one_that_knows_letters_or_nothing_is_refused(tokenizer: Letters | Unknown) -> None:
    with pytest.raises(ValueError, match=r"tokenizer of this file: \d+ tokens for 10 words"):
        require_words(tokenizer)
