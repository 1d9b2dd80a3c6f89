"""`inferscale verify MODEL`: whether a model can be served, and how exactly.

Loads it as a worker would, compares injection with prefill, measures the recipe and every storage
over built-in notes, and writes a verdict that a worker can require (`engine.verdict`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from inferscale_core.errors import InferScaleError
from inferscale_core.memory.recipe_files import load_recipe
from inferscale_core.memory.recipes import DEFAULT_RECIPE, Storage, storage_by_name
from inferscale_core.settings import WrongSettings, read_settings
from services.verification.run import Verification
from services.worker.verdict import StorageResult, Verdict

NEGATIVE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """0 for a model that passed, 2 for one that did not, 1 when it could not be found out."""
    options = _parser().parse_args(arguments)
    try:
        verdict = _verify(options)
    except WrongSettings as exc:
        exc.report("inferscale verify")
        return 1
    except InferScaleError as exc:
        print(f"inferscale verify: {exc}", file=sys.stderr)
        return 1
    if options.out is not None:
        options.out.write_text(verdict.to_json(), encoding="utf-8")
    print("\n".join(_lines(verdict)))
    return 0 if verdict.passed else NEGATIVE


def _verify(options: argparse.Namespace) -> Verdict:
    settings = read_settings()
    engine = settings.engine.model_copy(update={"model": options.model, "verdict": None})
    settings = settings.model_copy(update={"engine": engine})
    storages = [storage_by_name(name) for name in options.storage.split(",")]
    recipe = load_recipe(options.recipe)
    verification = Verification(settings, recipe, storages, options.questions)
    return asyncio.run(verification.run())


def _lines(verdict: Verdict) -> Iterator[str]:
    yield f"model     {verdict.model_revision}"
    yield f"versions  {', '.join(f'{name} {v}' for name, v in verdict.versions.items())}"
    for name, value in verdict.found.items():
        yield f"found     {name}: {value}"
    for check in verdict.checks:
        yield f"{'ok  ' if check.passed else 'FAIL'}      {check.name}: {check.detail}"
    for result in verdict.storages:
        mark = "safe" if result.is_safe else "not safe"
        said = "; ".join(part for part in (mark, _measured(result), result.detail) if part)
        yield f"storage   {result.storage}: {said}"
    yield f"verdict   {f'use {verdict.storage} storage' if verdict.passed else 'negative'}"


def _measured(result: StorageResult) -> str:
    figures = result.figures
    if not figures:
        return ""
    return (
        f"from cache storage: KL {figures['kl_first']:.3f}, "
        f"same first token {figures['top1']:.2f}, negative log-likelihood "
        f"{figures['nll'] - figures['nll_of_others']:+.3f}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="inferscale verify", description=__doc__.split("\n")[0])
    parser.add_argument("model", help="as INFERSCALE_ENGINE__MODEL")
    parser.add_argument("--out", type=Path, help="where to write the verdict (JSON)")
    parser.add_argument("--recipe", default=DEFAULT_RECIPE.name, help="a name or a file")
    parser.add_argument(
        "--storage", default=",".join(Storage), help="what to try beside cache storage"
    )
    parser.add_argument("--questions", type=int, help="ask only so many of the built-in ones")
    return parser


if __name__ == "__main__":
    sys.exit(main())
