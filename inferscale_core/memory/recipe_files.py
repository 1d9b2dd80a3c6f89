"""Recipes that an operator writes: a TOML or JSON file beside the built-in names.

Reads that file when it is asked for one; nothing else of this package does I/O.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.recipes import Recipe, recipe_by_name, storage_by_name
from inferscale_core.settings import RecipeSettings, WrongSettings, variable

SUFFIXES = (".toml", ".json")
LIKE = "like"
"""Names the recipe that gives the fields which a file leaves out."""

_TYPES = get_type_hints(Recipe)


def recipe_from_settings(settings: RecipeSettings) -> Recipe:
    """Raises WrongSettings."""
    try:
        return load_recipe(settings.name, settings.storage)
    except InvalidInput as exc:
        raise WrongSettings(f"{variable('recipe', 'name')}: {exc}") from exc


def load_recipe(name_or_path: str, storage: str | None = None) -> Recipe:
    """A built-in recipe by its name, or one from the file at a path that ends in .toml or .json.
    storage: in place of its own.

    Raises InvalidInput that names the field and what it may be.
    """
    recipe = _named_recipe(name_or_path)
    return recipe if storage is None else replace(recipe, storage=storage_by_name(storage))


def _named_recipe(name_or_path: str) -> Recipe:
    if not name_or_path.endswith(SUFFIXES):
        return recipe_by_name(name_or_path)
    path = Path(name_or_path).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput("recipe", f"{name_or_path!r} cannot be read: {exc}") from exc
    return recipe_from_text(text, is_json=path.suffix == ".json")


def recipe_from_text(text: str, *, is_json: bool) -> Recipe:
    """Raises InvalidInput, also for text that is neither."""
    try:
        body = json.loads(text) if is_json else tomllib.loads(text)
    except ValueError as exc:
        raise InvalidInput("recipe", f"is not {'JSON' if is_json else 'TOML'}: {exc}") from exc
    if not isinstance(body, dict):
        raise InvalidInput("recipe", "is not a table of fields")
    return recipe_from_fields(body)


def recipe_from_fields(body: Mapping[str, Any]) -> Recipe:
    known = {field.name: field for field in fields(Recipe)}
    unknown = sorted(body.keys() - known.keys() - {LIKE})
    if unknown:
        raise InvalidInput(f"recipe.{unknown[0]}", f"is not one of: {', '.join(known)}")
    if "name" not in body:
        raise InvalidInput("recipe.name", "is missing")
    values = {name: getattr(base, name) for name in known} if (base := _base(body)) else {}
    values |= {name: _value(known[name], body[name]) for name in known if name in body}
    return Recipe(**values)


def recipe_to_fields(recipe: Recipe) -> dict[str, Any]:
    """Every field but those that are None, as a file holds them."""
    named = ((field.name, getattr(recipe, field.name)) for field in fields(Recipe))
    return {name: str(v) if isinstance(v, Enum) else v for name, v in named if v is not None}


def _base(body: Mapping[str, Any]) -> Recipe | None:
    like = body.get(LIKE)
    if like is None:
        return None
    if not isinstance(like, str):
        raise InvalidInput("recipe.like", f"{like!r} is not the name of a recipe")
    return recipe_by_name(like)


def _value(field: Field[Any], value: Any) -> Any:
    """The value as the field's type. Raises InvalidInput for one of another type."""
    kind = _TYPES[field.name]
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError as exc:
            known = ", ".join(str(member) for member in kind)
            problem = f"{value!r} is not one of: {known}"
            raise InvalidInput(f"recipe.{field.name}", problem) from exc
    if value is None and field.default is not MISSING and type(None) in get_args(kind):
        return None
    wanted = next((t for t in get_args(kind) if t is not type(None)), kind)
    if type(value) is not wanted:
        raise InvalidInput(f"recipe.{field.name}", f"{value!r} is not of type {wanted.__name__}")
    return value
