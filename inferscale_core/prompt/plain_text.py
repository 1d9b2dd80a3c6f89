"""Text as tokens, of which none is a control token.

A tokenizer replaces every occurrence of an added token's string, `<|im_end|>` for example, by that
token's id. In a text that a caller controls this would let a fact end the system message. So such a
text is cut inside each occurrence and its pieces are tokenised apart: they decode to the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from inferscale_core.errors import InvalidInput
from inferscale_core.prompt.tokenizer import AddedToken, Tokenizer

_ANCHOR = "\n"
"""Stands before a piece while it is tokenised. Tokenizers of the SentencePiece kind put a space
before whatever comes first; behind the anchor a piece is not first."""


_NO_TEXT = "\ufffd"
"""Unicode's replacement character."""


class PlainTextEncoder:
    """Safe to call from several threads, as the tokenizer is."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._anchor_ids = self._encode_raw(_ANCHOR)
        control = {
            token_id: token
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if _is_control(token)
        }
        self._control_ids = frozenset(control) - {tokenizer.unk_token_id}
        strings = sorted({token.content for token in control.values()}, key=len, reverse=True)
        # A lookahead finds occurrences that overlap.
        pattern = "|".join(re.escape(string) for string in strings)
        self._control = re.compile(f"(?=(?:{pattern}))") if strings else None

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a caller's text. Control tokens written in it come out as plain text.

        Raises InvalidInput for half an emoji (a lone surrogate), which is no text.
        """
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise InvalidInput("text", f"character {exc.start} is half a surrogate pair") from exc
        return tuple(token_id for piece in self._pieces(text) for token_id in self._plain(piece))

    def encode_template(self, text: str, *, is_first: bool = False) -> tuple[int, ...]:
        """Tokens of our own text, in which control tokens are meant.

        is_first: nothing stands before it in the prompt.
        """
        return tuple(self._encode_raw(text) if is_first else self._encode_behind_anchor(text))

    def _pieces(self, text: str) -> Iterator[str]:
        """The text cut behind the first character of each control token's string."""
        begin = 0
        for match in self._control.finditer(text) if self._control else ():
            yield text[begin : match.start() + 1]
            begin = match.start() + 1
        yield text[begin:]

    def _plain(self, piece: str) -> Sequence[int]:
        if not piece:
            return ()
        ids = self._encode_behind_anchor(piece)
        if self._control_ids.isdisjoint(ids):
            return ids
        # The tokenizer normalises text before it looks for added tokens, so what it found is not
        # spelled out in ours. Halving always separates it; a single character that is a control
        # token by itself has no other spelling.
        if len(piece) == 1:
            return [i for i in self._encode_behind_anchor(_NO_TEXT) if i not in self._control_ids]
        middle = len(piece) // 2
        return [*self._plain(piece[:middle]), *self._plain(piece[middle:])]

    def _encode_behind_anchor(self, text: str) -> list[int]:
        num_anchor = len(self._anchor_ids)
        ids = self._encode_raw(_ANCHOR + text)
        if ids[:num_anchor] == self._anchor_ids:
            return ids[num_anchor:]
        # The anchor has merged with the text's own line break.
        return self._encode_raw(text)

    def _encode_raw(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def _is_control(token: AddedToken) -> bool:
    """Runs of white space and single characters are added tokens of some models, and plain text."""
    is_blank = not token.content.strip(" \t\r\n\u2581")
    return not is_blank and (token.special or len(token.content) > 1)
