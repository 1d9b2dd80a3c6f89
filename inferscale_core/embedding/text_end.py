"""The last part of a text that an embedder reads whole.

A fact that an embedder would cut is refused. A question is not: whoever writes a page to a model
usually asks at its end, so the end is what facts are searched for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from inferscale_core.embedding.embedder import Embedder

MAX_CHARACTERS_PER_TOKEN = 32
"""Of an end that is looked for. A long text is not tokenised again and again for the sake of a word
of hundreds of letters, which WordPiece makes one token of."""

MAX_WORD = 40
"""Characters given up so that an end begins with a whole word. Text without spaces is cut anywhere.
"""

_WORD_START = re.compile(r"(?<=\s)\S")


@dataclass(frozen=True, slots=True)
class TextEnd:
    """num_tokens: of this end. of_tokens: of the whole text. Special tokens are counted."""

    text: str
    num_tokens: int
    of_tokens: int

    @property
    def is_whole(self) -> bool:
        return self.num_tokens == self.of_tokens


def text_end(embedder: Embedder, text: str) -> TextEnd:
    """The text itself where it fits, which costs one count; else the longest end that does, from
    a word's start on, which costs some 15 counts of up to 8,192 characters."""
    of_tokens = embedder.count_tokens(text)
    if of_tokens <= embedder.max_tokens:
        return TextEnd(text, of_tokens, of_tokens)
    text = text.rstrip()
    end = text[_word_start(text, _first_that_fits(embedder, text)) :]
    return TextEnd(end, embedder.count_tokens(end), of_tokens)


def _first_that_fits(embedder: Embedder, text: str) -> int:
    """Where the longest end of few enough tokens begins, found by bisection."""
    too_long = max(-1, len(text) - 1 - embedder.max_tokens * MAX_CHARACTERS_PER_TOKEN)
    fits = len(text)
    while fits - too_long > 1:
        middle = (too_long + fits) // 2
        if embedder.count_tokens(text[middle:]) <= embedder.max_tokens:
            fits = middle
        else:
            too_long = middle
    return fits


def _word_start(text: str, begin: int) -> int:
    found = _WORD_START.search(text, begin, begin + MAX_WORD)
    return found.start() if found else begin
