"""How a chunk is encoded. A recipe's hash is part of every chunk key.

Progressive injection encodes a fact behind the serving header and related earlier facts of its
user, read from their stored KV. The windows of arXiv 2607.27090 encode it behind the conversation
turns before its source. docs/decisions/0018-sixteen-in-chapters.md has the measurements behind the
default, docs/recipes.md says what every field does.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import RecipeHash


class PrefixFacts(StrEnum):
    """How earlier facts stand in a prefix: as their stored KV, or as text that is prefilled."""

    INJECTED = "injected"
    TEXT = "text"


class FactOrder(StrEnum):
    """nearest_last: recent facts in order of arrival, behind them the nearest, most similar last.
    arrival: all in the order in which they were written."""

    NEAREST_LAST = "nearest_last"
    ARRIVAL = "arrival"


class Storage(StrEnum):
    """What a chunk's tokens are stored as; decision 0009 says what each costs.

    cache: what the engine's cache holds, bit for bit. The others are quantised.
    """

    CACHE = "cache"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


HEADER = (
    "You are a helpful assistant. The notes below are what you know about the user. "
    "Answer from them when they help.\n\nNotes:\n"
)
FOOTER = "End of notes.\n"

MAX_TEXT_FACTS = 100
_MAX_WORDING = 8192
"""Characters of a header, a footer or a template: more is a mistake, not a wording."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_BOUNDS = {
    "num_neighbours": (0, 256),
    "num_recent": (0, 256),
    "num_turns": (0, 1000),
    "newest_facts": (1, 1_000_000),
    "chapter": (2, 1_000_000),
    "max_depth": (2, 256),
    "max_fact_tokens": (1, 8192),
    "text_facts": (0, MAX_TEXT_FACTS),
}
_SERVING_ONLY = frozenset({"name", "text_facts"})
"""Fields that change no chunk."""

_HASHED_WHEN_SET = frozenset({"chapter"})
"""Fields that came after chunks were stored: a recipe without them keeps the hash it had."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What stands before a fact while it is encoded, and how facts are worded, kept and served.

        [ header | earlier facts | turns before the source ] fact

    All parts but the fact may be absent. Every field but `name` and `text_facts` changes what a
    chunk holds or where it is placed, so they are hashed.

    with_header: the header stands in the prefix, injected.
    num_neighbours: most similar earlier facts of the same user in the prefix.
    num_recent: most recent earlier facts in the prefix; neighbours are chosen among the others.
    running_sequence: every earlier fact that fits in the prefix, in order of arrival.
    fact_order, facts_as: how these facts stand there.
    num_turns: conversation turns before the fact's source turn in the prefix, as text.
    newest_facts: earlier facts are taken from this many newest ones; None means all.
    chapter: earlier facts are taken from the fact's own chapter only: so many memory versions in a
    row, of which every fact and turn that was written has one. None means no chapters.
    max_depth: how long a chain of chunks that saw each other may get; None means any length. A fact
    that would make it longer sees its earlier facts as text, and begins a new chain.
    max_fact_tokens: a longer fact is refused when it is added.
    storage: what the chunk's keys and values are kept as.
    text_facts: of the facts found for a chat, the best so many are served as text behind the
    injected ones.
    """

    name: str
    with_header: bool = True
    num_neighbours: int = 0
    num_recent: int = 0
    running_sequence: bool = False
    fact_order: FactOrder = FactOrder.NEAREST_LAST
    facts_as: PrefixFacts = PrefixFacts.INJECTED
    num_turns: int = 0
    newest_facts: int | None = None
    chapter: int | None = None
    max_depth: int | None = None
    header: str = HEADER
    footer: str = FOOTER
    dated_fact: str = "On {date}: {text}\n"
    undated_fact: str = "{text}\n"
    max_fact_tokens: int = 512
    storage: Storage = Storage.CACHE
    text_facts: int = 0

    def __post_init__(self) -> None:
        """Raises InvalidInput that names the field and its limit."""
        if not _NAME.fullmatch(self.name):
            raise InvalidInput("recipe.name", f"{self.name!r} does not match {_NAME.pattern}")
        for field, (least, most) in _BOUNDS.items():
            value = getattr(self, field)
            if value is not None and not least <= value <= most:
                raise InvalidInput(f"recipe.{field}", f"{value} is not in {least}..{most}")
        self._check_wording()
        self._check_parts()

    def _check_wording(self) -> None:
        for field in ("header", "footer", "dated_fact", "undated_fact"):
            if len(getattr(self, field)) > _MAX_WORDING:
                raise InvalidInput(f"recipe.{field}", f"is longer than {_MAX_WORDING} characters")
        for field in ("dated_fact", "undated_fact"):
            if "{text}" not in getattr(self, field):
                raise InvalidInput(f"recipe.{field}", "has no {text}")

    def _check_parts(self) -> None:
        if self.running_sequence and (self.num_neighbours or self.num_recent):
            raise InvalidInput(
                "recipe.running_sequence",
                "holds every earlier fact: num_neighbours and num_recent must be 0 beside it",
            )
        if self.max_depth is not None and not self.injects_facts:
            raise InvalidInput("recipe.max_depth", "bounds injected facts, and there are none")

    @property
    def sees_facts(self) -> bool:
        """Whether earlier facts stand in a prefix."""
        return self.running_sequence or self.num_neighbours > 0 or self.num_recent > 0

    @property
    def injects_facts(self) -> bool:
        return self.sees_facts and self.facts_as is PrefixFacts.INJECTED

    @property
    def hash(self) -> RecipeHash:
        return _hash(self)

    def render(self, text: str, occurred_at: datetime | None) -> str:
        """The line that stands for a fact, in prompts and in the embedding alike."""
        if occurred_at is None:
            return self.undated_fact.replace("{text}", text)
        date = f"{occurred_at.day} {occurred_at:%B} {occurred_at.year}"
        return self.dated_fact.replace("{date}", date).replace("{text}", text)


@lru_cache(maxsize=64)
def _hash(recipe: Recipe) -> RecipeHash:
    """Kept, since every chunk's key asks for it: 0.1 ms for each chunk of a user else."""
    fields = {
        key: value
        for key, value in asdict(recipe).items()
        if key not in _SERVING_ONLY and (value is not None or key not in _HASHED_WHEN_SET)
    }
    text = json.dumps(fields, sort_keys=True, ensure_ascii=True)
    return RecipeHash(hashlib.sha256(text.encode()).hexdigest()[:16])


def _progressive(num_neighbours: int) -> Recipe:
    return Recipe(f"progressive-{num_neighbours}", num_neighbours=num_neighbours)


DEFAULT_RECIPE = Recipe(
    "progressive-16-arrival-chapters",
    num_neighbours=16,
    fact_order=FactOrder.ARRIVAL,
    chapter=512,
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        DEFAULT_RECIPE,
        replace(DEFAULT_RECIPE, name="progressive-16-arrival", chapter=None),
        replace(DEFAULT_RECIPE, name="progressive-32-arrival-chapters", num_neighbours=32),
        replace(DEFAULT_RECIPE, name="progressive-32-arrival", num_neighbours=32, chapter=None),
        _progressive(32),
        _progressive(16),
        _progressive(8),
        Recipe("progressive-16-recent-16", num_neighbours=16, num_recent=16),
        Recipe(
            "progressive-16-recent-16-arrival",
            num_neighbours=16,
            num_recent=16,
            fact_order=FactOrder.ARRIVAL,
        ),
        Recipe("progressive-32-chapters", num_neighbours=32, chapter=512),
        Recipe("progressive-32-depth-8", num_neighbours=32, max_depth=8),
        Recipe("neighbours-32-as-text", num_neighbours=32, facts_as=PrefixFacts.TEXT),
        Recipe("running-sequence", running_sequence=True),
        Recipe("header-only"),
        *(Recipe(f"window-{w}", with_header=False, num_turns=w) for w in (0, 5, 20, 50)),
        Recipe("header-window-50", num_turns=50),
    )
}


def recipe_by_name(name: str) -> Recipe:
    """Raises InvalidInput that lists the known names."""
    if name not in RECIPES:
        raise InvalidInput("recipe", f"{name!r} is not one of: {', '.join(sorted(RECIPES))}")
    return RECIPES[name]


def storage_by_name(name: str) -> Storage:
    """Raises InvalidInput that lists the known names."""
    if name not in set(Storage):
        raise InvalidInput("recipe.storage", f"{name!r} is not one of: {', '.join(Storage)}")
    return Storage(name)
