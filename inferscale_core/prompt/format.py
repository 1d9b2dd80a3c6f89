"""The tokens of a model's prompts: `[header][facts][tail]`, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import Recipe
from inferscale_core.prompt.placement import (
    FACTS_SLOT,
    ChatMessage,
    as_plain_lines,
    choose,
    render,
)
from inferscale_core.prompt.plain_text import PlainTextEncoder
from inferscale_core.prompt.tokenizer import Tokenizer

__all__ = ["ChatMessage", "PromptFormat"]


RENDERED_TAILS = 64
"""Sequences of roles whose template is kept: most chats begin, or go on for a few turns."""


class PromptFormat:
    """How one recipe reads in one model's chat template. Safe to call from several threads.

    header_ids: the same for every chat, user and tenant.
    """

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe) -> None:
        self._tokenizer = tokenizer
        self._recipe = recipe
        self._encoder = PlainTextEncoder(tokenizer)
        self._placement = choose(tokenizer, recipe)
        self._header = render(self._placement, tokenizer, recipe, ["user"]).header
        self.header_ids = self._header_ids()
        self._tail = lru_cache(maxsize=RENDERED_TAILS)(self._render_tail)

    def fact_ids(self, text: str, occurred_at: datetime | None) -> tuple[int, ...]:
        """The line that stands for a fact. Raises InvalidInput for what is no text."""
        return self._encoder.encode(self._recipe.render(text, occurred_at))

    def turn_ids(self, speaker: str, text: str) -> tuple[int, ...]:
        return self._encoder.encode(f"{speaker}: {text}\n")

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """An answer as it stands behind the generation prompt. Raises InvalidInput for what is no
        text."""
        # Behind a chat template it begins a line, behind `assistant:` a word.
        lead = " " if self._placement is as_plain_lines else ""
        return self._encoder.encode(lead + text)

    def tail_ids(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """What follows the facts: the end of the notes, the messages, the generation prompt.

        Raises InvalidInput when the model's template refuses the order of roles.
        """
        behind_facts, parts = self._tail(tuple(message.role for message in messages))
        ids = list(behind_facts)
        for index, behind in parts:
            ids.extend(self._encoder.encode(messages[index].content))
            ids.extend(behind)
        return tuple(ids)

    def _render_tail(
        self, roles: tuple[str, ...]
    ) -> tuple[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]:
        """The template's tokens behind the facts, then for each message that follows its index and
        the tokens behind it. Depends on the roles alone: a template's date is fixed."""
        rendered = render(self._placement, self._tokenizer, self._recipe, roles)
        if rendered.header != self._header:
            raise InvalidInput("messages", "the model's chat template moves the notes for them")
        begin = rendered.slots.index(FACTS_SLOT) + 1
        behind = [self._encoder.encode_template(text) for text in rendered.texts[begin:]]
        indices = [slot - 1 for slot in rendered.slots[begin:]]
        return behind[0], list(zip(indices, behind[1:], strict=True))

    def _header_ids(self) -> tuple[int, ...]:
        ids = self._encoder.encode_template(self._header, is_first=True)
        if self._placement is as_plain_lines:
            return self._leading_bos() + ids
        return ids

    def _leading_bos(self) -> tuple[int, ...]:
        """BOS where this tokenizer puts it before every text; a template writes its own."""
        bos = self._tokenizer.bos_token_id
        begins_with = self._tokenizer.encode("a", add_special_tokens=True)[:1]
        return (bos,) if bos is not None and begins_with == [bos] else ()
