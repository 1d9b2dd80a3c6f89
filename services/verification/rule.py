"""By what figures a model passes, and which storage it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferscale_core.memory.recipes import Storage
from services.worker.verdict import Check, StorageResult

KL_OF_RECIPE = 0.5
NLL_OF_RECIPE = 0.25
"""Nats beyond text mode at which the default recipe's answers are clearly worse. Seen: .07 and .06
(KL), -.03 and .08 (log-likelihood) with two small models over 50 facts."""

KL_OF_STORAGE = 0.02
NLL_OF_STORAGE = 0.03
"""Nats beyond what cache storage gives. Seen: .004 and less with int8 and fp8, .1 with the int4 of
one model, above 3 with formats that lose the keys."""

SMALLEST_FIRST = (Storage.INT4, Storage.FP8, Storage.INT8, Storage.CACHE)

RULE = (
    f"The recipe passes when, over the built-in questions, the first token's mean KL from text "
    f"mode is at most {KL_OF_RECIPE} nats and the given answers' mean negative log-likelihood at "
    f"most {NLL_OF_RECIPE} above text mode's. A storage is safe when its KL is at most "
    f"{KL_OF_STORAGE} and its negative log-likelihood at most {NLL_OF_STORAGE} above those of "
    f"cache storage. The smallest safe one is chosen."
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of injected answers from text mode's: means over the built-in questions."""

    n: int
    kl_first: float
    top1: float
    nll: float
    nll_text: float
    f1: float
    f1_text: float


def judge_recipe(recipe: str, found: Divergence) -> Check:
    worse = found.nll - found.nll_text
    return Check(
        "recipe_answers_as_text_does",
        found.kl_first <= KL_OF_RECIPE and worse <= NLL_OF_RECIPE,
        f"{recipe}: first token's KL {found.kl_first:.3f}, the same one in {found.top1:.0%} of "
        f"{found.n} questions, negative log-likelihood {worse:+.3f}",
        {"kl_first": found.kl_first, "nll_to_text": worse, "top1": found.top1},
    )


def judge_storage(storage: Storage, found: Divergence, cache: Divergence) -> StorageResult:
    kl, nll = found.kl_first - cache.kl_first, found.nll - cache.nll
    problems = []
    # A comparison that is false for NaN.
    if not kl <= KL_OF_STORAGE:
        problems.append(f"KL {kl:+.3f}")
    if not nll <= NLL_OF_STORAGE:
        problems.append(f"negative log-likelihood {nll:+.3f}")
    figures = {
        "n": found.n,
        "kl_first": found.kl_first,
        "top1": found.top1,
        "nll": found.nll,
        "nll_text": found.nll_text,
        "f1": found.f1,
        "f1_text": found.f1_text,
        "kl_to_cache": kl,
        "nll_to_cache": nll,
    }
    detail = f"beyond cache storage: {', '.join(problems)}" if problems else ""
    return StorageResult(storage, not problems, detail, figures)


def choose_storage(checks: Sequence[Check], results: Sequence[StorageResult]) -> Storage | None:
    """None when a check failed or nothing is safe."""
    safe = {result.storage for result in results if result.is_safe}
    if not all(check.passed for check in checks):
        return None
    return next((storage for storage in SMALLEST_FIRST if storage in safe), None)
