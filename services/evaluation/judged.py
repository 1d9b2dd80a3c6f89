"""Judged accuracy: the share of answers that a judge found right.

A reply without a verdict is no right answer; how many there were stands beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from services.evaluation.figures import Row, by_category, figure, of_category, signed, with_interval
from services.evaluation.judge.wording import Verdict
from services.evaluation.scores import TEXT, JudgedBy, QuestionScore

Pairs = Sequence[tuple[QuestionScore, QuestionScore]]


def judged_figures(
    judge: JudgedBy | None, scores: Sequence[QuestionScore], pairs: Pairs | None
) -> Row:
    """pairs: with text mode's; None where that was not judged, or by another judge."""
    if judge is None:
        return {}
    row: Row = {
        **figure("judged", [is_right(score) for score in scores]),
        "judged_unclear": sum(score.verdict == Verdict.UNCLEAR for score in scores),
        "judged_by_category": by_category("judged", scores, is_right),
        "judge": asdict(judge),
    }
    return row | (judged_difference("judged_to_text", pairs) if pairs is not None else {})


def judged_difference(name: str, pairs: Pairs) -> Row:
    return figure(name, [is_right(score) - is_right(other) for score, other in pairs])


def is_right(score: QuestionScore) -> float:
    return float(score.verdict == Verdict.RIGHT)


def judged_table(rows: Sequence[Row]) -> str:
    """Of the rows that were judged, in Markdown; empty when none was."""
    judged = [row for row in rows if "judged" in row]
    if not judged:
        return ""
    names = list(dict.fromkeys(name for row in judged for name in row["judged_by_category"]))
    head = ["recipe", "storage", "k", "n", "judged right", "less text mode's", "no verdict"]
    head += [f"right, {name}" for name in names] + ["judge"]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 3)}---|"]
    for row in judged:
        cells = [
            *(f"`{row['recipe']}`", row["dtype"] or "–", str(row["k"]), str(row["n"])),
            with_interval(row, "judged"),
            _to_text(row),
            str(row["judged_unclear"]),
            *(of_category(row["judged_by_category"].get(name), "judged") for name in names),
            f"{row['judge']['model']}, asked {row['judge']['asked']}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _to_text(row: Row) -> str:
    is_compared = row["recipe"] != TEXT and "judged_to_text" in row
    return signed(row, "judged_to_text") if is_compared else "–"
