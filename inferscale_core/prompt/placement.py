"""Where the notes stand in a model's chat template.

A template is rendered with slots in place of everything that a caller controls. So no text of a
caller is ever read by a template, and what lies between the slots is the model's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import Recipe
from inferscale_core.prompt.tokenizer import Tokenizer

_SLOT = re.compile(r"inferscale-slot-(\d+)-end")
_TEMPLATE_DATE = datetime(2026, 1, 1)
"""What a template that prints today's date is told: the header must not change from day to day."""

FACTS_SLOT = 0


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """role: "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered chat: texts of the template, and between each two the number of a slot."""

    texts: tuple[str, ...]
    slots: tuple[int, ...]

    @property
    def header(self) -> str:
        """What stands before the facts."""
        return self.texts[self.slots.index(FACTS_SLOT)]


Placement = Callable[[Tokenizer, Recipe, Sequence[str]], str]
"""Renders a chat whose messages have these roles. Message i has slot i + 1, the facts slot 0."""


def slot(number: int) -> str:
    return f"inferscale-slot-{number}-end"


def render(
    placement: Placement, tokenizer: Tokenizer, recipe: Recipe, roles: Sequence[str]
) -> Rendered:
    """Raises InvalidInput when the template refuses these roles or leaves a message out."""
    try:
        text = placement(tokenizer, recipe, roles)
    except (TemplateError, ValueError, TypeError, KeyError) as exc:
        # The message is the template's own: it has seen slots only.
        raise InvalidInput("messages", f"the model's chat template refuses them: {exc}") from exc
    parts = _SLOT.split(text)
    rendered = Rendered(tuple(parts[::2]), tuple(int(number) for number in parts[1::2]))
    missing = set(range(len(roles) + 1)) - set(rendered.slots)
    if missing or len(rendered.slots) != len(roles) + 1:
        raise InvalidInput("messages", "the model's chat template repeats or leaves out a message")
    return rendered


def in_system_message(tokenizer: Tokenizer, recipe: Recipe, roles: Sequence[str]) -> str:
    """The notes open the system message; the request's own system messages follow them."""
    notes, others = _notes(recipe, roles)
    return _apply(tokenizer, [{"role": "system", "content": notes}, *others])


def in_first_user_message(tokenizer: Tokenizer, recipe: Recipe, roles: Sequence[str]) -> str:
    """For templates without a system role, or that move the system message about."""
    notes, others = _notes(recipe, roles)
    if others and others[0]["role"] == "user":
        first = {"role": "user", "content": f"{notes}\n{others[0]['content']}"}
        return _apply(tokenizer, [first, *others[1:]])
    return _apply(tokenizer, [{"role": "user", "content": notes}, *others])


def as_plain_lines(tokenizer: Tokenizer, recipe: Recipe, roles: Sequence[str]) -> str:
    """For models without a chat template: `role: text`, one line each."""
    notes, others = _notes(recipe, roles)
    lines = "".join(f"{message['role']}: {message['content']}\n" for message in others)
    return f"{notes}\n{lines}assistant:"


def choose(tokenizer: Tokenizer, recipe: Recipe) -> Placement:
    """The first placement whose header is the same in every chat."""
    if tokenizer.chat_template:
        for placement in (in_system_message, in_first_user_message):
            if _has_one_header(placement, tokenizer, recipe):
                return placement
    return as_plain_lines


_PROBES: tuple[tuple[str, ...], ...] = (
    ("user",),
    ("system", "user"),
    ("user", "assistant", "user"),
    ("system", "user", "assistant", "user"),
)


def _has_one_header(placement: Placement, tokenizer: Tokenizer, recipe: Recipe) -> bool:
    try:
        headers = {render(placement, tokenizer, recipe, roles).header for roles in _PROBES}
    except InvalidInput:
        return False
    return len(headers) == 1


def _notes(recipe: Recipe, roles: Sequence[str]) -> tuple[str, list[dict[str, str]]]:
    """The notes with the system messages behind them, and the other messages."""
    messages = [{"role": role, "content": slot(i + 1)} for i, role in enumerate(roles)]
    system = "".join(f"\n{m['content']}\n" for m in messages if m["role"] == "system")
    notes = f"{recipe.header}{slot(FACTS_SLOT)}{recipe.footer}{system}"
    return notes, [message for message in messages if message["role"] != "system"]


def _apply(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> str:
    text: Any = tokenizer.apply_chat_template(
        messages,
        tokenize=False,
        add_generation_prompt=True,
        date_string=f"{_TEMPLATE_DATE:%d %b %Y}",
        strftime_now=_TEMPLATE_DATE.strftime,
    )
    return str(text)
