"""Rows, a table and a plot from the scores of a folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from inferscale_core.errors import InvalidInput
from services.evaluation.figures import Row, by_category, figure, of_category, signed
from services.evaluation.judged import judged_difference, judged_figures
from services.evaluation.plot import Line, line_plot
from services.evaluation.scores import (
    PART_MARK,
    TEXT,
    TEXT_AGAIN,
    JudgedBy,
    QuestionScore,
    ScoreFile,
    joined,
    load_scores,
)


def read_folder(folder: Path) -> list[ScoreFile]:
    """Every score file, those of parts put together. Raises InvalidInput when they are not of one
    data set, model and way of asking."""
    by_stem: dict[str, list[ScoreFile]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        by_stem[path.stem.partition(PART_MARK)[0]].append(load_scores(path))
    files = [file for parts in by_stem.values() for file in parts]
    if not files:
        raise InvalidInput("out", f"{folder} holds no scores")
    first = files[0].about
    for file in files:
        about = file.about
        if (about.data, about.model_revision, about.asked) != (
            first.data,
            first.model_revision,
            first.asked,
        ):
            raise InvalidInput("out", f"{folder} mixes scores of {first} and {about}")
    return [_whole(folder, stem, parts) for stem, parts in by_stem.items()]


def _whole(folder: Path, stem: str, parts: Sequence[ScoreFile]) -> ScoreFile:
    file = joined(parts)
    if len({_place(score) for score in file.scores}) < len(file.scores):
        raise InvalidInput("out", f"parts of {folder / stem} have questions in common")
    return file


def make_rows(files: Iterable[ScoreFile], against: Sequence[str] = ()) -> list[Row]:
    """One row for each way of asking and k, compared with text mode over the same questions.

    against: recipes that all others are compared with as well, over the questions that both have.
    """
    by_k: dict[int, list[ScoreFile]] = defaultdict(list)
    for file in files:
        by_k[file.about.k].append(file)
    return [row for k in sorted(by_k) for row in _rows_of(by_k[k], against)]


def _rows_of(files: Sequence[ScoreFile], against: Sequence[str]) -> list[Row]:
    texts = {
        score.prompt: (score, file.judged_by)
        for file in files
        if file.mode == TEXT
        for score in file.scores
    }
    ordered = sorted(files, key=lambda file: (file.mode != TEXT, file.mode, file.dtype))
    # The first of a recipe that was measured with several storages: as in the engine's cache.
    others = {file.mode: file for file in reversed(ordered) if file.mode in against}
    return [
        _row(file, texts) | _compared(file, [others[name] for name in against if name in others])
        for file in ordered
    ]


def _row(
    file: ScoreFile, text_by_prompt: Mapping[str, tuple[QuestionScore, JudgedBy | None]]
) -> Row:
    """text_by_prompt: text mode's scores, and who judged them."""
    scores = file.scores
    missing = sum(score.prompt not in text_by_prompt for score in scores)
    if missing:
        raise InvalidInput(
            "out", f"text mode was not asked {missing} of the prompts of {file.mode}"
        )
    pairs = [(score, text_by_prompt[score.prompt][0]) for score in scores]
    judges = {text_by_prompt[score.prompt][1] for score in scores}
    row: Row = {
        "recipe": file.mode,
        "k": file.about.k,
        "dtype": file.dtype,
        "n": len(scores),
        **figure("f1", [s.f1 for s in scores]),
        **figure("nll", [s.nll for s in scores]),
        **figure("kl_first", [s.kl for s in scores]),
        **figure("top1", [float(s.top_token == t.top_token) for s, t in pairs]),
        **figure("exact", [float(s.said == t.said) for s, t in pairs]),
        **figure("f1_to_text", [s.f1 - t.f1 for s, t in pairs]),
        **figure("nll_to_text", [s.nll - t.nll for s, t in pairs]),
        "f1_by_category": by_category("f1", scores, lambda score: score.f1),
        **judged_figures(file.judged_by, scores, pairs if judges == {file.judged_by} else None),
        "model_revision": file.about.model_revision,
        "data": file.about.data,
        "asked": file.about.asked,
        **file.made,
    }
    if file.cost is not None:
        row["encode"] = asdict(file.cost)
    return row


def _compared(file: ScoreFile, others: Sequence[ScoreFile]) -> Row:
    compared = {}
    for other in others:
        by_place = {_place(score): score for score in other.scores}
        pairs = [(s, by_place[_place(s)]) for s in file.scores if _place(s) in by_place]
        if file is other or file.mode in (TEXT, TEXT_AGAIN) or not pairs:
            continue
        compared[other.mode] = {
            "n": len(pairs),
            **figure("f1", [s.f1 - o.f1 for s, o in pairs]),
            **figure("nll", [s.nll - o.nll for s, o in pairs]),
            **figure("kl_first", [s.kl - o.kl for s, o in pairs]),
        }
        if file.judged_by is not None and file.judged_by == other.judged_by:
            compared[other.mode] |= judged_difference("judged", pairs)
    return {"compared": compared} if compared else {}


def _place(score: QuestionScore) -> tuple[str, int]:
    return score.conversation, score.number


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    head = [
        *("recipe", "storage", "k", "n", "F1", "F1 less text mode's", "NLL"),
        *("NLL less text mode's", "KL, first token", "same first token", "same answer"),
    ]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 2)}"]
    for row in rows:
        cells = [
            *(f"`{row['recipe']}`", row["dtype"] or "–", str(row["k"]), str(row["n"])),
            f"{row['f1']:.3f}",
            _difference(row, "f1_to_text"),
            f"{row['nll']:.3f}",
            _difference(row, "nll_to_text"),
            f"{row['kl_first']:.3f}",
            f"{row['top1']:.2f}",
            f"{row['exact']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def comparison_table(rows: Sequence[Row]) -> str:
    """What is different from the recipes that rows were compared with, in Markdown; empty when with
    none."""
    names = {"f1": "F1", "nll": "NLL", "kl_first": "KL, first token"}
    if any("judged" in figures for row in rows for figures in row.get("compared", {}).values()):
        names |= {"judged": "judged right"}
    lines = [
        f"| recipe | storage | k | compared with | n | {' | '.join(names.values())} |",
        f"|---|---|---:|---|---:|{'---:|' * len(names)}",
    ]
    for row in rows:
        for other, figures in row.get("compared", {}).items():
            cells = [f"`{row['recipe']}`", row["dtype"], str(row["k"]), f"`{other}`"]
            cells += [str(figures["n"])]
            cells += [signed(figures, name) if name in figures else "–" for name in names]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def category_table(rows: Sequence[Row]) -> str:
    """F1 of each category of questions, in Markdown."""
    names = list(dict.fromkeys(name for row in rows for name in row["f1_by_category"]))
    lines = [
        f"| recipe | storage | k | {' | '.join(f'F1, {name}' for name in names)} |",
        f"|---|---|---:|{'---:|' * len(names)}",
    ]
    for row in rows:
        cells = [f"`{row['recipe']}`", row["dtype"] or "–", str(row["k"])]
        cells += [of_category(row["f1_by_category"].get(name), "f1") for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _difference(row: Row, name: str) -> str:
    return "–" if row["recipe"] == TEXT else signed(row, name)


def plot(rows: Sequence[Row]) -> str:
    """F1 over k as an SVG, one line for each way of asking."""
    return _plot(rows, "f1", "Answers over injected facts", "token F1")


def nll_plot(rows: Sequence[Row]) -> str:
    """The same of the likelihood of given answers: how far it is from text mode's."""
    title = "Likelihood of the given answers over injected facts"
    return _plot(rows, "nll_to_text", title, "NLL less text mode's")


def judged_plot(rows: Sequence[Row]) -> str:
    """The same of judged accuracy; empty when no row was judged."""
    judged = [row for row in rows if "judged" in row]
    if not judged:
        return ""
    models = ", ".join(dict.fromkeys(str(row["judge"]["model"]) for row in judged))
    what = f"share that {models} found right"
    return _plot(judged, "judged", "Judged answers over injected facts", what)


def _plot(rows: Sequence[Row], name: str, title: str, what: str) -> str:
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        storage = "" if row["dtype"] in ("", "cache") else f" {row['dtype']}"
        points[f"{row['recipe']}{storage}"].append((row["k"], row[name]))
    lines = [Line(label, tuple(sorted(places))) for label, places in points.items()]
    return line_plot(
        title,
        f"{what} over k facts, {_questions(rows)} questions, {rows[0]['model_revision']}",
        "facts in the prompt (k)",
        lines,
    )


def _questions(rows: Sequence[Row]) -> str:
    numbers = sorted({int(row["n"]) for row in rows})
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
