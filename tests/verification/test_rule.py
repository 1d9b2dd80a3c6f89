from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferscale_core.errors import Unsupported
from inferscale_core.ids import ModelRevision
from inferscale_core.kv.key_means import KeyMeans
from inferscale_core.memory.recipes import DEFAULT_RECIPE, Recipe, Storage
from inferscale_core.settings import EngineSettings, Settings
from services.evaluation.prepared import PreparedVectors
from services.verification.notes import WordVectors, built_in_notes, prepared_notes
from services.verification.rule import (
    Divergence,
    choose_storage,
    judge_recipe,
    judge_storage,
)
from services.worker.app import running_engine
from services.worker.engine.host import engine_version
from services.worker.engine.model_files import ModelFiles
from services.worker.verdict import (
    Check,
    StorageResult,
    Verdict,
    measured_hash,
    require_verdict,
    verdict_from_json,
)
from tests.tiny_models import LLAMA

FOUND = Divergence(n=40, kl_first=0.03, top1=0.9, nll=2.6, nll_of_others=2.6, f1=0.3)
PASSED = Check("exact", True, "", {})


def test_a_recipe_passes_by_its_distance_from_text_mode() -> None:
    assert judge_recipe("r", FOUND).passed
    assert judge_recipe("r", replace(FOUND, kl_first=2.0, nll=2.84)).passed
    assert not judge_recipe("r", replace(FOUND, kl_first=2.01)).passed
    assert not judge_recipe("r", replace(FOUND, nll=2.86)).passed
    assert not judge_recipe("r", replace(FOUND, nll=math.nan)).passed


@pytest.mark.parametrize(
    ("changes", "is_safe"),
    [
        ({}, True),
        ({"kl_first": 0.049, "nll": 2.649}, True),
        ({"nll": 2.4}, True),
        ({"kl_first": 0.051}, False),
        ({"nll": 2.651}, False),
        ({"kl_first": math.nan}, False),
    ],
)
def test_a_storage_is_safe_by_its_distance_from_cache_storage(
    changes: dict[str, float], is_safe: bool
) -> None:
    result = judge_storage(Storage.INT8, replace(FOUND, **changes))
    assert result.is_safe is is_safe
    assert bool(result.detail) is not is_safe


def result(storage: Storage, is_safe: bool = True) -> StorageResult:
    return StorageResult(storage, is_safe, "", {})


def test_the_smallest_safe_storage_is_chosen_and_none_after_a_failed_check() -> None:
    cache, int8, int4 = result(Storage.CACHE), result(Storage.INT8), result(Storage.INT4)
    assert choose_storage([PASSED], [cache, int8, int4]) is Storage.INT4
    assert choose_storage([PASSED], [cache, int8, result(Storage.INT4, False)]) is Storage.INT8
    assert choose_storage([PASSED], [cache]) is Storage.CACHE
    assert choose_storage([PASSED, replace(PASSED, passed=False)], [cache, int8]) is None
    assert choose_storage([PASSED], [result(Storage.CACHE, False)]) is None


def verdict(**changes: object) -> Verdict:
    base = Verdict(
        model="tiny",
        model_revision=ModelRevision("tiny@1"),
        versions={"vllm": "0.26.0"},
        date="2026-11-29T12:00:00+00:00",
        recipe=DEFAULT_RECIPE.name,
        recipe_hash=measured_hash(DEFAULT_RECIPE),
        found={"rotary": [{"kind": "RotaryEmbedding"}]},
        checks=(PASSED,),
        storages=(result(Storage.CACHE), result(Storage.INT8), result(Storage.INT4, False)),
        storage=Storage.INT8,
        rule="",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def written(folder: Path, one: Verdict) -> Path:
    path = folder / "verdict.json"
    path.write_text(one.to_json())
    return path


def required(
    path: Path,
    storage: Storage = Storage.INT8,
    vllm: str = "0.26.0",
    recipe: Recipe = DEFAULT_RECIPE,
) -> Verdict:
    return require_verdict(path, ModelRevision("tiny@1"), vllm, replace(recipe, storage=storage))


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = verdict()
    assert verdict_from_json(one.to_json()) == one
    assert required(written(tmp_path, one)) == one
    assert required(written(tmp_path, one), Storage.CACHE) == one


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_revision": "tiny@2"}, r"is of model revision 'tiny@2', not 'tiny@1'"),
        ({"versions": {"vllm": "0.27.0"}}, r"was made with vLLM 0.27.0, not 0.26.0"),
        (
            {"storage": None, "checks": (Check("exactness", False, "", {}),)},
            r"is negative: exactness",
        ),
        ({"storage": None, "storages": ()}, r"is negative: no storage is safe"),
    ],
)
def test_a_verdict_that_does_not_fit_says_why(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(Unsupported, match=reason):
        required(written(tmp_path, verdict(**changes)))


@pytest.mark.parametrize(
    "other",
    [
        replace(DEFAULT_RECIPE, name="another", num_neighbours=8),
        replace(DEFAULT_RECIPE, num_neighbours=8),
    ],
    ids=["another", "another of the same name"],
)
def test_a_verdict_of_another_recipe_is_refused(tmp_path: Path, other: Recipe) -> None:
    path = written(tmp_path, verdict())
    with pytest.raises(Unsupported, match=rf"is of recipe '{DEFAULT_RECIPE.name}', not of"):
        required(path, recipe=other)


def test_a_recipe_is_known_by_its_name_where_a_verdict_has_nothing_else(tmp_path: Path) -> None:
    body = json.loads(verdict().to_json())
    del body["recipe_hash"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(body))
    assert required(path).recipe_hash is None
    with pytest.raises(Unsupported, match="is of recipe"):
        required(path, recipe=replace(DEFAULT_RECIPE, name="another"))


def test_a_storage_that_was_not_found_safe_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, verdict())
    with pytest.raises(Unsupported, match=r"does not find int4 storage safe; int8 is"):
        required(path, Storage.INT4)
    with pytest.raises(Unsupported, match=r"does not find fp8 storage safe"):
        required(path, Storage.FP8)


def test_a_verdict_keeps_the_means_that_its_storages_were_measured_with(tmp_path: Path) -> None:
    means = KeyMeans({"layer": np.ones((2, 8), np.float16)})
    read = required(written(tmp_path, verdict(key_means=means.to_text()))).means
    assert read is not None
    assert read.digest == means.digest
    assert verdict().means is None
    path = written(tmp_path, verdict(key_means="of another kind"))
    with pytest.raises(Unsupported, match=r"verdict.json holds no verdict"):
        required(path)


def test_chunks_stored_without_other_means_are_those_of_another_model_revision() -> None:
    model = ModelFiles(Path(), "tiny", ModelRevision("tiny@1"))
    ones, twos = (KeyMeans({"layer": np.full((2, 8), x, np.float16)}) for x in (1, 2))
    assert model.stored_as(Storage.INT8, None) == model
    assert model.stored_as(Storage.CACHE, ones) == model, "nothing is left out there"
    revisions = {model.stored_as(Storage.INT8, means).revision for means in (None, ones, twos)}
    assert len(revisions) == 3


@pytest.mark.parametrize("content", [None, "{", "[]", '{"format": 2}', '{"format": 1}'])
def test_what_is_no_verdict_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "verdict.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(Unsupported, match=r"verdict.json holds no verdict"):
        required(path)


async def test_a_worker_whose_model_has_no_verdict_starts_no_engine(tmp_path: Path) -> None:
    model = LLAMA.save(tmp_path)
    path = written(tmp_path, verdict(versions={"vllm": engine_version()}))
    settings = Settings(engine=EngineSettings(model=str(model), verdict=str(path)))
    with pytest.raises(Unsupported, match=r"is of model revision 'tiny@1', not 'llama@"):
        async with running_engine(settings):
            pytest.fail("the engine started")


def test_the_built_in_notes_ask_about_what_they_state() -> None:
    notes = built_in_notes()
    assert (len(notes.facts), len(notes.questions)) == (58, 40)
    vectors = PreparedVectors(prepared_notes(DEFAULT_RECIPE))
    facts = vectors.embed(
        [DEFAULT_RECIPE.render(fact.text, fact.occurred_at) for fact in notes.facts]
    )
    found = 0
    for question in notes.questions:
        nearest = np.argsort(facts @ vectors.embed([question.text])[0])[-20:]
        words = set(question.answer.lower().rstrip(".").split())
        found += any(words & set(notes.facts[i].text.lower().split()) for i in nearest)
    assert found >= 36


def test_texts_that_share_words_are_nearer() -> None:
    one, near, far = WordVectors().embed(["the green hive", "a hive, green", "Elsa's telescope"])
    assert one @ near > one @ far
    assert np.allclose(np.linalg.norm(WordVectors().embed(["", "x"]), axis=1), 1.0)
