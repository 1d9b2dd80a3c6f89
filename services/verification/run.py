"""Loading a model once for each storage, and putting together what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from statistics import fmean
from typing import Any

from inferscale_core.errors import Unsupported
from inferscale_core.kv.key_means import KeyMeans
from inferscale_core.memory.recipes import Recipe, Storage
from inferscale_core.settings import RecipeSettings, Settings
from services.evaluation.asking import Asking
from services.evaluation.direct import DirectDriver
from services.evaluation.prepared import Prepared
from services.evaluation.scores import Answered, QuestionScore
from services.verification.exactness import check_exactness
from services.verification.notes import prepared_notes
from services.verification.rule import (
    RULE,
    Divergence,
    choose_storage,
    judge_recipe,
    judge_storage,
)
from services.worker.app import RunningEngine, running_engine
from services.worker.engine.host import engine_version
from services.worker.engine.model_files import find_model, load_tokenizer
from services.worker.verdict import Check, StorageResult, Verdict, measured_hash

NUM_FACTS = 20
"""Facts in a prompt: more than a third of the built-in ones, so that most matter to none."""

AT_ONCE = 16


class Verification:
    """One model, one recipe. `run` may take an engine start for each storage."""

    def __init__(
        self,
        settings: Settings,
        recipe: Recipe,
        storages: Sequence[Storage],
        num_questions: int | None = None,
    ) -> None:
        """num_questions: asked of the built-in ones; None means all."""
        self._settings = settings
        self._recipe = recipe
        self._storages = storages
        self._prepared: Prepared = prepared_notes(recipe, num_questions)
        self._found: dict[str, Any] = {}
        self._checks: list[Check] = []
        self._results: list[StorageResult] = []
        self._key_means: KeyMeans | None = None
        self._of_cache: list[Answered] = []

    async def run(self) -> Verdict:
        """A negative verdict for what is refused by name; raises only what is nobody's finding."""
        await self._look_at(Storage.CACHE)
        for storage in self._storages:
            if self._of_cache and storage is not Storage.CACHE:
                await self._look_at(storage)
        model = find_model(self._settings.engine)
        return Verdict(
            model=model.served_name,
            model_revision=model.revision,
            versions=versions(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            recipe=self._recipe.name,
            found=self._found,
            checks=tuple(self._checks),
            storages=tuple(self._results),
            storage=choose_storage(self._checks, self._results),
            rule=RULE,
            key_means=None if self._key_means is None else self._key_means.to_text(),
            recipe_hash=measured_hash(self._recipe),
        )

    async def _look_at(self, storage: Storage) -> None:
        chosen = RecipeSettings(storage=storage.value)
        settings = self._settings.model_copy(update={"recipe": chosen})
        try:
            async with running_engine(settings, self._key_means) as running:
                if storage is Storage.CACHE:
                    await self._look_at_cache(running)
                else:
                    found = await self._from_cache(running)
                    self._results.append(judge_storage(storage, found))
        except Unsupported as exc:
            self._refused(storage, str(exc))

    async def _look_at_cache(self, running: RunningEngine) -> None:
        ranks = await running.host.call_ranks("inferscale_describe")
        self._found = {**ranks[0], "tensor_parallel_size": len(ranks)}
        self._checks.append(
            Check(
                "model_is_supported",
                True,
                "attention, rotary variant and cache layout are known; each rotary table was "
                "compared with the model's own module",
                {},
            )
        )
        tokenizer = load_tokenizer(running.model)
        ids = [
            token
            for fact in self._prepared.conversations[0].facts
            for token in tokenizer.encode(fact.text, add_special_tokens=False)
        ]
        block_size, dtype = int(ranks[0]["block_size"]), str(ranks[0]["cache_dtype"])
        self._checks += await check_exactness(running, ids, block_size, dtype)
        self._checks.append(judge_recipe(self._recipe.name, await self._from_text(running)))
        scores = _scores(self._of_cache)
        itself = _divergence([replace(score, kl=0.0) for score in scores], scores)
        self._results.append(judge_storage(Storage.CACHE, itself))

    async def _from_text(self, running: RunningEngine) -> Divergence:
        """Of cache storage from text mode. Keeps its scores to compare other storages with."""
        driver = self._driver(running)
        await running.host.measure_keys()
        await driver.encode()
        self._found["key_means"] = await self._measured_keys(running)
        if self._found["cache_dtype"] != "uint8":
            ranks = await running.host.call_ranks("inferscale_key_channels")
            self._found["key_channel_ratio"] = round(max(map(max, ranks)), 1)
        asks = await driver.asks(NUM_FACTS)
        texts = await driver.ask_text(asks)
        self._of_cache = await driver.ask_injected(asks, [one.first for one in texts])
        return _divergence(_scores(self._of_cache), _scores(texts))

    async def _measured_keys(self, running: RunningEngine) -> dict[str, Any]:
        """What is written down of the key means, which are kept for the storages to come."""
        try:
            measured = await running.host.measured_keys()
        except Unsupported as exc:
            return {"refused": str(exc)}
        if measured is None:
            return {"refused": "with this recipe every fact begins its prompt"}
        self._key_means, shares = measured
        return {
            "digest": self._key_means.digest,
            "least_share": round(min(shares), 3),
            "largest_share": round(max(shares), 3),
        }

    async def _from_cache(self, running: RunningEngine) -> Divergence:
        driver = self._driver(running)
        await driver.encode()
        asks = await driver.asks(NUM_FACTS)
        seen = await driver.ask_injected(asks, [one.first for one in self._of_cache])
        return _divergence(_scores(seen), _scores(self._of_cache))

    def _driver(self, running: RunningEngine) -> DirectDriver:
        return DirectDriver(
            running,
            self._prepared,
            self._recipe,
            load_tokenizer(running.model),
            Asking(max_tokens=24),
            at_once=AT_ONCE,
        )

    def _refused(self, storage: Storage, reason: str) -> None:
        if storage is Storage.CACHE:
            self._checks.append(Check("model_is_supported", False, reason, {}))
        else:
            self._results.append(StorageResult(storage, False, reason, {}))


def _scores(answered: Sequence[Answered]) -> list[QuestionScore]:
    return [one.score for one in answered]


def _divergence(seen: Sequence[QuestionScore], others: Sequence[QuestionScore]) -> Divergence:
    pairs = list(zip(seen, others, strict=True))
    return Divergence(
        n=len(pairs),
        kl_first=fmean(one.kl for one in seen),
        top1=fmean(float(one.top_token == other.top_token) for one, other in pairs),
        nll=fmean(one.nll for one in seen),
        nll_of_others=fmean(other.nll for _, other in pairs),
        f1=fmean(one.f1 for one in seen),
    )


def versions() -> dict[str, str]:
    found = {"vllm": engine_version()}
    for name in ("inferscale-memory", "torch", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
