"""What `inferscale verify` found of a model, and what a worker requires of it at its start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inferscale_core.errors import Unsupported
from inferscale_core.ids import ModelRevision, RecipeHash
from inferscale_core.kv.key_means import KeyMeans, key_means_from_text
from inferscale_core.memory.recipes import Recipe, Storage

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Check:
    """detail: a sentence for whoever reads it. figures: what was measured."""

    name: str
    passed: bool
    detail: str
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StorageResult:
    """Divergence from cache storage with chunks stored so. is_safe: by the rule of the verdict.

    detail: why it is not safe, or "".
    """

    storage: Storage
    is_safe: bool
    detail: str
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """storage: the one to use, or None when the model did not pass. found: what the engine loaded.

    recipe_hash: `measured_hash`; None in verdicts from before there was one, where the name has to
    do. rule: how `is_safe` and `storage` were decided, in words. key_means: `KeyMeans.to_text`,
    with which quantised storages were measured and must be served; None when there are none.
    """

    model: str
    model_revision: ModelRevision
    versions: Mapping[str, str]
    date: str
    recipe: str
    found: Mapping[str, Any]
    checks: tuple[Check, ...]
    storages: tuple[StorageResult, ...]
    storage: Storage | None
    rule: str
    key_means: str | None = None
    recipe_hash: RecipeHash | None = None

    @property
    def means(self) -> KeyMeans | None:
        """Raises ValueError or TypeError for a text that is none."""
        return None if self.key_means is None else key_means_from_text(self.key_means)

    @property
    def passed(self) -> bool:
        return self.storage is not None

    @property
    def failed_checks(self) -> list[str]:
        return [check.name for check in self.checks if not check.passed]

    def is_of(self, recipe: Recipe) -> bool:
        """Whether this recipe was measured, whatever its chunks are stored as."""
        if self.recipe_hash is None:
            return self.recipe == recipe.name
        return self.recipe_hash == measured_hash(recipe)

    def to_json(self) -> str:
        body = {"format": FORMAT, "passed": self.passed, **asdict(self)}
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def measured_hash(recipe: Recipe) -> RecipeHash:
    """Of what a verdict says how it answers: all but the storage, of which it has several."""
    return replace(recipe, storage=Storage.CACHE).hash


def verdict_from_json(text: str) -> Verdict:
    """Raises ValueError, KeyError or TypeError for what is no verdict of this format."""
    body = json.loads(text)
    if body.pop("format") != FORMAT:
        raise ValueError("another format")
    body.pop("passed")
    body["checks"] = tuple(Check(**check) for check in body["checks"])
    body["storages"] = tuple(
        StorageResult(**(result | {"storage": Storage(result["storage"])}))
        for result in body["storages"]
    )
    body["storage"] = Storage(body["storage"]) if body["storage"] else None
    verdict = Verdict(**body)
    _ = verdict.means
    return verdict


def require_verdict(
    path: Path, model_revision: ModelRevision, vllm_version: str, recipe: Recipe
) -> Verdict:
    """The verdict, if it allows this worker to start. Raises Unsupported that says why not."""
    try:
        verdict = verdict_from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise Unsupported(f"engine.verdict: {path} holds no verdict: {exc!r}") from exc
    reason = _objection(verdict, model_revision, vllm_version, recipe)
    if reason:
        raise Unsupported(f"engine.verdict: {path} {reason}; run `inferscale verify` again")
    return verdict


def _objection(
    verdict: Verdict, model_revision: ModelRevision, vllm_version: str, recipe: Recipe
) -> str | None:
    if verdict.model_revision != model_revision:
        return f"is of model revision {verdict.model_revision!r}, not {model_revision!r}"
    found = verdict.versions.get("vllm")
    if found != vllm_version:
        return f"was made with vLLM {found}, not {vllm_version}"
    if not verdict.is_of(recipe):
        return f"is of recipe {verdict.recipe!r}, not of {recipe.name!r} as it is here"
    if not verdict.passed:
        failed = ", ".join(verdict.failed_checks) or "no storage is safe"
        return f"is negative: {failed}"
    if recipe.storage not in {result.storage for result in verdict.storages if result.is_safe}:
        return f"does not find {recipe.storage} storage safe; {verdict.storage} is"
    return None
