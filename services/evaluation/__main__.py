"""`inferscale eval`: how good answers over injected facts are, on a data set of one's own machine.

    inferscale eval prepare --data DIR --out FILE
    inferscale eval locomo --direct --prepared FILE --model M --k 5,10,20,50 --recipes A,B --out DIR
    inferscale eval locomo --api HOST:PORT --api-key-file FILE --data DIR --model M --out DIR
    inferscale eval judge DIR --data DIR --judge-url URL --judge-model NAME
    inferscale eval report DIR

Engine and embedder are set as for a worker, by the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from inferscale_core.client import AsyncInferScale
from inferscale_core.embedding import load_embedder
from inferscale_core.errors import InferScaleError, InvalidInput
from inferscale_core.memory.recipe_files import load_recipe
from inferscale_core.memory.recipes import DEFAULT_RECIPE, Recipe, storage_by_name
from inferscale_core.settings import Settings, WrongSettings, read_settings
from services.evaluation.api import ApiDriver
from services.evaluation.asking import INSTRUCTION, Asking
from services.evaluation.circumstances import circumstances
from services.evaluation.dataset import Conversation, first_questions, part_by_name
from services.evaluation.judge.options import add_judge_options, judge_at
from services.evaluation.judged import judged_table
from services.evaluation.locomo import load_locomo
from services.evaluation.prepared import Prepared, load, prepare, save, without_vectors
from services.evaluation.report import (
    category_table,
    comparison_table,
    judged_plot,
    make_rows,
    nll_plot,
    plot,
    read_folder,
    table,
)
from services.evaluation.retold import as_one_user
from services.evaluation.run import Wanted, run_api, run_direct


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except WrongSettings as exc:
        return exc.report("inferscale eval")
    except InferScaleError as exc:
        print(f"inferscale eval: {exc}", file=sys.stderr)
        return 1
    return 0


def _prepare(options: argparse.Namespace) -> None:
    settings = read_settings()
    conversations: Sequence[Conversation] = load_locomo(options.data)
    if options.one_user is not None:
        conversations = [as_one_user(conversations, options.one_user)]
    prepared = _with_vectors(conversations, options, settings)
    save(prepared, options.out)
    size = options.out.stat().st_size
    print(f"{options.out}: {len(prepared.vectors)} vectors, {size} bytes")


def _locomo(options: argparse.Namespace) -> None:
    settings = read_settings()
    judge = judge_at(options, settings.judge)
    engine = settings.engine.model_copy(update={"model": options.model})
    settings = settings.model_copy(update={"engine": engine})
    if options.part and not options.direct:
        raise InvalidInput("part", "is for --direct")
    if options.data is None:
        prepared = load(options.prepared)
    elif options.direct:
        prepared = _with_vectors(load_locomo(options.data), options, settings)
    else:
        prepared = without_vectors(load_locomo(options.data))
    asked = first_questions(prepared.conversations, options.limit)
    prepared = replace(prepared, conversations=asked)
    recipes = _recipes(options.recipes, options.storage)
    has_turns = any(conversation.turns for conversation in asked)
    for recipe in recipes:
        if options.direct and recipe.num_turns and not has_turns:
            raise InvalidInput("recipes", f"{recipe.name} sees turns, and the data has none")
    wanted = Wanted(
        recipes=tuple(recipes),
        ks=_numbers("k", options.k),
        asking=Asking(options.instruction, options.max_tokens),
        at_once=options.at_once,
        folder=options.out,
        with_text_again=options.text_again,
        made=circumstances(with_engine=options.direct),
        part=part_by_name(options.part) if options.part else None,
    )
    if judge is not None:
        # Before hours of asking.
        asyncio.run(judge.check(options.out))
    if options.direct:
        asyncio.run(run_direct(settings, prepared, wanted))
    else:
        asyncio.run(_through_api(options, prepared, wanted))
    if judge is not None:
        asyncio.run(judge.judge(options.out, prepared.conversations))
    _report(options)


def _judge(options: argparse.Namespace) -> None:
    judge = judge_at(options, read_settings().judge)
    assert judge is not None, "the parser asks for its url"
    if options.data is not None:
        conversations: Sequence[Conversation] = load_locomo(options.data)
    else:
        conversations = load(options.prepared).conversations
    asyncio.run(judge.judge(options.out, first_questions(conversations, options.limit)))
    _report(options)


async def _through_api(options: argparse.Namespace, prepared: Prepared, wanted: Wanted) -> None:
    if options.api_key_file is None:
        raise InvalidInput("api_key_file", "is needed with --api")
    key = options.api_key_file.read_text().strip()
    async with AsyncInferScale(options.api, key) as client:
        driver = ApiDriver(
            client,
            prepared.conversations,
            wanted.asking,
            prefix=options.user_prefix,
            at_once=wanted.at_once,
            model=options.model,
            text_facts=options.text_facts,
        )
        storage = storage_by_name(options.storage or "cache")
        await run_api(driver, prepared.digest, wanted, storage)


def _report(options: argparse.Namespace) -> None:
    against = [name for name in (options.against or "").split(",") if name]
    rows = make_rows(read_folder(options.out), against)
    folder = options.out / "report"
    folder.mkdir(exist_ok=True)
    (folder / "rows.json").write_text(
        "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"
    )
    made = (table(rows), comparison_table(rows), category_table(rows), judged_table(rows))
    tables = "\n".join(filter(None, made))
    (folder / "table.md").write_text(tables)
    (folder / "f1.svg").write_text(plot(rows))
    (folder / "nll.svg").write_text(nll_plot(rows))
    if picture := judged_plot(rows):
        (folder / "judged.svg").write_text(picture)
    print(tables, end="")


def _with_vectors(
    conversations: Sequence[Conversation], options: argparse.Namespace, settings: Settings
) -> Prepared:
    embedder = load_embedder(settings.embedder)
    return prepare(conversations, list(_recipes(options.recipes, "")), embedder)


def _recipes(names: str, storages: str) -> list[Recipe]:
    """Each recipe with each storage; with its own where no storage is named."""
    recipes = [load_recipe(name) for name in names.split(",") if name]
    if not recipes:
        raise InvalidInput("recipes", "names none")
    if not storages:
        return recipes
    wanted = [storage_by_name(name) for name in storages.split(",")]
    return [replace(recipe, storage=storage) for storage in wanted for recipe in recipes]


def _numbers(field: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as exc:
        raise InvalidInput(field, f"{text!r} is no list of numbers") from exc
    if min(numbers) < 1:
        raise InvalidInput(field, "is at least 1")
    return numbers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="inferscale eval", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_prepare(commands.add_parser("prepare", help="embed a data set into one file"))
    _add_locomo(commands.add_parser("locomo", help="ask a model and score its answers"))
    _add_judge(commands.add_parser("judge", help="have answers judged that were kept with scores"))
    report = commands.add_parser("report", help="table, rows and plot from scores")
    report.add_argument("out", type=Path, help="folder of scores")
    report.add_argument("--against", help="recipes that the others are compared with as well")
    report.set_defaults(run=_report)
    return parser


def _add_prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="folder of LoCoMo's JSON files")
    parser.add_argument("--out", type=Path, required=True, help="the file to write (.npz)")
    parser.add_argument(
        "--recipes", default=DEFAULT_RECIPE.name, help="recipes whose wording of facts is embedded"
    )
    parser.add_argument(
        "--one-user",
        type=int,
        metavar="FACTS",
        help="all conversations as the memory of one user, and told again of other people until "
        "it has so many facts",
    )
    parser.set_defaults(run=_prepare)


def _add_locomo(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder of LoCoMo's JSON files; embeds them here")
    source.add_argument("--prepared", type=Path, help="what `prepare` wrote")
    parser.add_argument(
        "--model", required=True, help="as INFERSCALE_ENGINE__MODEL, or as the tenant lists it"
    )
    parser.add_argument("--k", default="5,10,20,50", help="numbers of facts")
    parser.add_argument("--recipes", default=DEFAULT_RECIPE.name, help="names or files")
    parser.add_argument("--storage", default="", help="instead of the recipes' own, one or several")
    parser.add_argument("--out", type=Path, required=True, help="folder of scores, begun or new")
    parser.add_argument("--against", help="recipes that the others are compared with as well")
    parser.add_argument("--limit", type=int, help="only the first so many questions")
    parser.add_argument(
        "--part",
        help="with --direct: 1/3 asks a third of the questions, alike in conversations and "
        "categories; the report has all parts that the folder has",
    )
    parser.add_argument("--at-once", type=int, default=256, help="questions in the engine")
    parser.add_argument("--max-tokens", type=int, default=32, help="of an answer")
    parser.add_argument(
        "--text-again",
        action="store_true",
        help="with --direct: ask text mode twice, to see how far it is from itself",
    )
    parser.add_argument("--instruction", default=INSTRUCTION, help="the system message")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--direct",
        action="store_true",
        help="the engine in this process, without services and a database",
    )
    way.add_argument("--api", help="host:port of control; asks with the recipe that is served")
    parser.add_argument("--api-key-file", type=Path, help="with --api: holds the tenant's key")
    parser.add_argument("--user-prefix", default="locomo", help="with --api: of the user ids")
    parser.add_argument("--text-facts", type=int, help="with --api: best facts as text")
    add_judge_options(parser)
    parser.set_defaults(run=_locomo)


def _add_judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="folder of scores")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder of LoCoMo's JSON files")
    source.add_argument("--prepared", type=Path, help="what `prepare` wrote")
    parser.add_argument("--limit", type=int, help="as it was asked with")
    parser.add_argument("--against", help="recipes that the others are compared with as well")
    add_judge_options(parser, required=True)
    parser.set_defaults(run=_judge)


if __name__ == "__main__":
    sys.exit(main())
