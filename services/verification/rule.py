"""By what figures a model passes, and which storage it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from inferscale_core.memory.recipes import Storage
from services.worker.verdict import Check, StorageResult

KL_OF_RECIPE = 2.0
NLL_OF_RECIPE = 0.25
"""Nats beyond text mode at which the recipe's answers are clearly worse. Seen with two small models
over 50 facts: -.03 and .08 in log-likelihood; in KL .07 with one, and .6 to .9 with the other,
which chats and may begin its answer in many ways. What is broken is off by more than 3 in both."""

KL_OF_STORAGE = 0.05
NLL_OF_STORAGE = 0.05
"""Nats from what cache storage gives. Seen in log-likelihood: .004 and less with int8 and fp8, .1
with the int4 of one model, above 3 with formats that lose the keys."""

SMALLEST_FIRST = (Storage.INT4, Storage.FP8, Storage.INT8, Storage.CACHE)

RULE = (
    f"The recipe passes when, over the built-in questions, the first token's mean KL from text "
    f"mode is at most {KL_OF_RECIPE} nats and the given answers' mean negative log-likelihood at "
    f"most {NLL_OF_RECIPE} above text mode's. A storage is safe when the first token's mean KL "
    f"from cache storage is at most {KL_OF_STORAGE} nats and the negative log-likelihood at most "
    f"{NLL_OF_STORAGE} above that of cache storage. The smallest safe one is chosen."
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of injected answers from others to the same questions: from text mode's, or from those with
    cache storage. Means over the built-in questions."""

    n: int
    kl_first: float
    top1: float
    nll: float
    nll_of_others: float
    f1: float

    @property
    def worse(self) -> float:
        """In negative log-likelihood."""
        return self.nll - self.nll_of_others

    def figures(self) -> dict[str, float]:
        return asdict(self)


def judge_recipe(recipe: str, found: Divergence) -> Check:
    """found: from text mode."""
    return Check(
        "recipe_answers_as_text_does",
        found.kl_first <= KL_OF_RECIPE and found.worse <= NLL_OF_RECIPE,
        f"{recipe}: first token's KL {found.kl_first:.3f}, the same one in {found.top1:.0%} of "
        f"{found.n} questions, negative log-likelihood {found.worse:+.3f}",
        found.figures(),
    )


def judge_storage(storage: Storage, found: Divergence) -> StorageResult:
    """found: from cache storage."""
    problems = []
    # Comparisons that are false for NaN.
    if not found.kl_first <= KL_OF_STORAGE:
        problems.append(f"KL {found.kl_first:.3f}")
    if not found.worse <= NLL_OF_STORAGE:
        problems.append(f"negative log-likelihood {found.worse:+.3f}")
    detail = f"too far from cache storage: {', '.join(problems)}" if problems else ""
    return StorageResult(storage, not problems, detail, found.figures())


def choose_storage(checks: Sequence[Check], results: Sequence[StorageResult]) -> Storage | None:
    """None when a check failed or nothing is safe."""
    safe = {result.storage for result in results if result.is_safe}
    if not all(check.passed for check in checks):
        return None
    return next((storage for storage in SMALLEST_FIRST if storage in safe), None)
