"""Asking every recipe for every k on one engine after another, and keeping what was scored.

What a folder of scores has is not asked again, so a run that was cut off is started anew with the
same command. Recipes with the same storage share an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import ModelRevision
from inferscale_core.memory.recipes import Recipe, Storage
from inferscale_core.settings import RecipeSettings, Settings
from services.evaluation.answers import save_answers
from services.evaluation.api import ApiDriver
from services.evaluation.asking import Asking, wording_digest
from services.evaluation.dataset import Part
from services.evaluation.direct import Ask, DirectDriver
from services.evaluation.prepared import Prepared
from services.evaluation.scores import (
    PART_MARK,
    TEXT,
    TEXT_AGAIN,
    About,
    Answered,
    FirstTokens,
    ScoreFile,
    load_scores,
)
from services.worker.app import RunningEngine, running_engine
from services.worker.engine.model_files import load_tokenizer


@dataclass(frozen=True, slots=True)
class Wanted:
    """recipes: with the storage each is to be measured with. at_once: questions in the engine.
    with_text_again: ask text mode a second time, to know how far it is from itself. made: kept with
    every score. part: of the questions; None means all."""

    recipes: tuple[Recipe, ...]
    ks: tuple[int, ...]
    asking: Asking
    at_once: int
    folder: Path
    with_text_again: bool
    made: Mapping[str, Any]
    part: Part | None = None

    def path(self, mode: str, k: int) -> Path:
        """Of the scores of one way of asking."""
        behind = "" if self.part is None else f"{PART_MARK}{self.part.number}of{self.part.total}"
        return self.folder / f"{mode}-k{k}{behind}.json"


async def run_direct(settings: Settings, prepared: Prepared, wanted: Wanted) -> None:
    """Raises InvalidInput when the folder holds scores of something else."""
    wanted.folder.mkdir(parents=True, exist_ok=True)
    for storage, recipes in groupby(_by_storage(wanted.recipes), key=lambda recipe: recipe.storage):
        missing = [recipe for recipe in recipes if _missing_ks(wanted, recipe)]
        if missing:
            await _run_storage(settings, prepared, wanted, storage, missing)


async def run_api(driver: ApiDriver, data: str, wanted: Wanted, storage: Storage) -> None:
    """Through a service, with the recipe that it serves. data: `data_digest` of what was stored.
    storage: what its chunks are stored as, which only its operator knows."""
    wanted.folder.mkdir(parents=True, exist_ok=True)
    await driver.store()
    for k in wanted.ks:
        asked = await driver.ask(k)
        about = _about(data, wanted, ModelRevision(asked.model_revision), k)
        text = [pair.text for pair in asked.pairs]
        _keep(
            wanted.folder / f"{TEXT}-{asked.recipe}-k{k}.json",
            ScoreFile(about, TEXT, "", (), _first_tokens(text), made=wanted.made),
            text,
        )
        _keep(
            wanted.folder / f"{asked.recipe}-{storage}-k{k}.json",
            ScoreFile(about, asked.recipe, storage.value, (), made=wanted.made),
            [pair.injected for pair in asked.pairs],
        )


async def _run_storage(
    settings: Settings,
    prepared: Prepared,
    wanted: Wanted,
    storage: Storage,
    recipes: Sequence[Recipe],
) -> None:
    chosen = RecipeSettings(storage=storage.value)
    async with running_engine(settings.model_copy(update={"recipe": chosen})) as running:
        tokenizer = load_tokenizer(running.model)
        for recipe in recipes:
            driver = DirectDriver(
                running,
                prepared,
                recipe,
                tokenizer,
                wanted.asking,
                at_once=wanted.at_once,
                part=wanted.part,
            )
            await _run_recipe(running, driver, prepared, wanted, recipe)


async def _run_recipe(
    running: RunningEngine,
    driver: DirectDriver,
    prepared: Prepared,
    wanted: Wanted,
    recipe: Recipe,
) -> None:
    cost = await driver.encode()
    for k in _missing_ks(wanted, recipe):
        about = _about(prepared.digest, wanted, running.model.revision, k)
        asks = await driver.asks(k)
        text = await _text_scores(driver, asks, about, wanted, recipe)
        answered = await driver.ask_injected(asks, text.compared)
        file = ScoreFile(about, recipe.name, recipe.storage.value, (), cost=cost, made=wanted.made)
        _keep(_path(wanted, recipe, k), file, answered)
    await driver.close()


async def _text_scores(
    driver: DirectDriver, asks: Sequence[Ask], about: About, wanted: Wanted, recipe: Recipe
) -> ScoreFile:
    """Those of the folder, or asked now. The same for all recipes that word alike."""
    path = wanted.path(f"{TEXT}-{wording_digest(recipe)}", about.k)
    if path.exists():
        file = load_scores(path)
        _check_same(path, file.about, about)
        return file
    answered = await driver.ask_text(asks)
    compared = _first_tokens(answered)
    if wanted.with_text_again:
        again = await driver.ask_text_again(asks, compared)
        path_again = path.with_name(path.name.replace(TEXT, TEXT_AGAIN, 1))
        _keep(path_again, ScoreFile(about, TEXT_AGAIN, "", (), made=wanted.made), again)
    return _keep(path, ScoreFile(about, TEXT, "", (), compared, made=wanted.made), answered)


def _keep(path: Path, file: ScoreFile, answered: Sequence[Answered]) -> ScoreFile:
    """Writes the file with these scores; the answers first, so that scores never lack them."""
    save_answers(path, [one.said for one in answered])
    whole = replace(file, scores=tuple(one.score for one in answered))
    whole.save(path)
    return whole


def _first_tokens(answered: Sequence[Answered]) -> tuple[FirstTokens, ...]:
    return tuple(one.first for one in answered)


def _about(data: str, wanted: Wanted, model_revision: ModelRevision, k: int) -> About:
    return About(data, model_revision, wanted.asking.digest(), k)


def _check_same(path: Path, found: About, expected: About) -> None:
    if found != expected:
        raise InvalidInput("out", f"{path} holds scores of {found}, not of {expected}")


def _missing_ks(wanted: Wanted, recipe: Recipe) -> list[int]:
    return [k for k in wanted.ks if not _path(wanted, recipe, k).exists()]


def _path(wanted: Wanted, recipe: Recipe, k: int) -> Path:
    return wanted.path(f"{recipe.name}-{recipe.storage}", k)


def _by_storage(recipes: Sequence[Recipe]) -> Iterator[Recipe]:
    """In the order given, those of the first one's storage first."""
    for storage in dict.fromkeys(recipe.storage for recipe in recipes):
        yield from (recipe for recipe in recipes if recipe.storage is storage)
