"""How a chunk is encoded. A recipe's hash is part of every chunk key.

Progressive injection encodes a fact behind the serving header and its nearest earlier facts, read
from their stored KV. The windows of arXiv 2607.27090 encode it behind the conversation turns before
its source. docs/decisions/0001-progressive-injection.md has the measurements behind the default,
docs/architecture.md a table of the recipes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import RecipeHash


class Prefix(StrEnum):
    """What stands before a fact while it is encoded."""

    HEADER_AND_NEIGHBOURS = "header_and_neighbours"
    HEADER_AND_TURNS = "header_and_turns"
    TURNS = "turns"


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


@dataclass(frozen=True, slots=True)
class Recipe:
    """Every field changes what a chunk holds or how it is placed, so all but `name` are hashed.

    num_neighbours: nearest earlier facts of the same user in the prefix, nearest last.
    newest_facts: neighbours are chosen among this many newest earlier facts; None means all.
    num_turns: conversation turns before the fact's source turn in the prefix, as text.
    max_fact_tokens: a longer fact is refused when it is added.
    storage: what the chunk's keys and values are kept as.
    """

    name: str
    prefix: Prefix
    num_neighbours: int = 0
    newest_facts: int | None = None
    num_turns: int = 0
    header: str = HEADER
    footer: str = FOOTER
    dated_fact: str = "On {date}: {text}\n"
    undated_fact: str = "{text}\n"
    max_fact_tokens: int = 512
    storage: Storage = Storage.CACHE

    def __post_init__(self) -> None:
        if not 0 <= self.num_neighbours <= 256:
            raise InvalidInput("recipe.num_neighbours", f"{self.num_neighbours} is not in 0..256")
        if not 0 <= self.num_turns <= 1000:
            raise InvalidInput("recipe.num_turns", f"{self.num_turns} is not in 0..1000")

    @property
    def hash(self) -> RecipeHash:
        fields = {key: value for key, value in asdict(self).items() if key != "name"}
        text = json.dumps(fields, sort_keys=True, ensure_ascii=True)
        return RecipeHash(hashlib.sha256(text.encode()).hexdigest()[:16])

    def render(self, text: str, occurred_at: datetime | None) -> str:
        """The line that stands for a fact, in prompts and in the embedding alike."""
        if occurred_at is None:
            return self.undated_fact.replace("{text}", text)
        date = f"{occurred_at.day} {occurred_at:%B} {occurred_at.year}"
        return self.dated_fact.replace("{date}", date).replace("{text}", text)


def _progressive(num_neighbours: int) -> Recipe:
    return Recipe(
        f"progressive-{num_neighbours}",
        Prefix.HEADER_AND_NEIGHBOURS,
        num_neighbours=num_neighbours,
    )


DEFAULT_RECIPE = _progressive(32)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        DEFAULT_RECIPE,
        _progressive(16),
        _progressive(8),
        Recipe("header-only", Prefix.HEADER_AND_NEIGHBOURS),
        *(Recipe(f"window-{w}", Prefix.TURNS, num_turns=w) for w in (0, 5, 20, 50)),
        Recipe("header-window-50", Prefix.HEADER_AND_TURNS, num_turns=50),
    )
}


def recipe_by_name(name: str, storage: str | None = None) -> Recipe:
    """The recipe, with another storage than its own where one is named.

    Raises InvalidInput that lists the known names.
    """
    if name not in RECIPES:
        raise InvalidInput("recipe", f"{name!r} is not one of: {', '.join(sorted(RECIPES))}")
    recipe = RECIPES[name]
    return recipe if storage is None else replace(recipe, storage=storage_by_name(storage))


def storage_by_name(name: str) -> Storage:
    """Raises InvalidInput that lists the known names."""
    if name not in set(Storage):
        raise InvalidInput("recipe.storage", f"{name!r} is not one of: {', '.join(Storage)}")
    return Storage(name)
