from __future__ import annotations

import io
import math
import random
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from inferscale_core.errors import InvalidInput
from services.evaluation.bootstrap import mean_interval
from services.evaluation.dataset import Question
from services.evaluation.progress import Progress
from services.evaluation.report import (
    category_table,
    comparison_table,
    make_rows,
    nll_plot,
    plot,
    read_folder,
    table,
)
from services.evaluation.scores import (
    TEXT,
    About,
    EncodeCost,
    QuestionScore,
    ScoreFile,
    divergence,
    load_scores,
    score_question,
)
from services.worker.engine.protocol import NextToken
from services.worker.scoring import PlanScore

ABOUT = About("data", "tiny@1", "asked", 5)
COST = EncodeCost(facts=40, forwarded_tokens=1_100, waves=12, seconds=0.5)


def score(number: int, **changes: object) -> QuestionScore:
    base = QuestionScore("1", number, 1 + number % 4, f"p{number}", 0.5, 2.0, "said", 7)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_equal_distributions_do_not_diverge_and_others_do() -> None:
    wanted = {1: math.log(0.5), 2: math.log(0.3)}
    assert divergence(wanted, wanted) == 0.0
    seen = {1: math.log(0.25), 2: math.log(0.15)}
    expected = 0.8 * math.log(2) + 0.2 * math.log(0.2 / 0.6)
    assert divergence(wanted, seen) == pytest.approx(expected)


def test_what_is_left_of_both_distributions_counts_as_one_token() -> None:
    """So the divergence over a few tokens is never more than that over all of them."""
    chance = random.Random(0)
    for _ in range(50):
        weights = [[chance.random() + 0.01 for _ in range(20)] for _ in range(2)]
        p, q = ([w / sum(row) for w in row] for row in weights)
        whole = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        best = sorted(range(20), key=p.__getitem__)[-6:]
        part = divergence({i: math.log(p[i]) for i in best}, {i: math.log(q[i]) for i in best})
        assert -1e-12 <= part <= whole + 1e-12


def test_a_question_is_judged_by_what_was_said_and_by_its_own_answer() -> None:
    first = NextToken(4, {4: math.log(0.9)})
    answer = PlanScore(first, (-1.0, -2.0), " The office. ")
    judged = score_question("1", 3, Question("Where?", "the office", 4), "p1", answer, None)
    assert (judged.f1, judged.nll, judged.top_token, judged.kl) == (1.0, 1.5, 4, 0.0)
    assert "office" not in repr(judged)
    other = score_question("1", 3, Question("Where?", "x", 4), "p2", answer, {4: math.log(0.5)})
    assert (judged.prompt, other.prompt) == ("p1", "p2")
    assert other.kl == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))


def test_scores_are_kept_in_a_file_and_read_again(tmp_path: Path) -> None:
    file = ScoreFile(ABOUT, TEXT, "", (score(0), score(1, kl=0.25)), ({7: -0.5}, {8: -1.5}), COST)
    file.save(tmp_path / "one.json")
    assert load_scores(tmp_path / "one.json") == file
    (tmp_path / "two.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"two.json holds no scores"):
        load_scores(tmp_path / "two.json")


def folder_with(tmp_path: Path) -> Path:
    text = tuple(score(n, f1=n % 2, nll=2.0, said=f"s{n}", top_token=n) for n in range(40))
    better = tuple(replace(s, nll=s.nll - 0.5, kl=0.1) for s in text)
    worse = tuple(
        replace(s, f1=s.f1 / 2, said="other", top_token=99 if s.number < 10 else s.number)
        for s in text
    )
    for k in (5, 10):
        about = replace(ABOUT, k=k)
        ScoreFile(about, TEXT, "", text, ({},) * 40).save(tmp_path / f"text-k{k}.json")
        ScoreFile(about, "better", "cache", better, (), COST).save(tmp_path / f"a-k{k}.json")
        ScoreFile(about, "worse", "int8", worse).save(tmp_path / f"b-k{k}.json")
    return tmp_path


def test_rows_compare_every_recipe_with_text_mode_over_the_same_questions(tmp_path: Path) -> None:
    rows = make_rows(read_folder(folder_with(tmp_path)), against=["worse", "absent"])
    assert [(row["k"], row["recipe"], row["dtype"]) for row in rows] == [
        *((5, "text", ""), (5, "better", "cache"), (5, "worse", "int8")),
        *((10, "text", ""), (10, "better", "cache"), (10, "worse", "int8")),
    ]
    text, better, worse = rows[:3]
    assert (text["f1"], text["top1"], text["exact"], text["kl_first"]) == (0.5, 1.0, 1.0, 0.0)
    assert (better["nll_to_text"], better["nll_to_text_interval"]) == (-0.5, [-0.5, -0.5])
    assert better["kl_first"] == 0.1
    assert better["encode"]["forwarded_tokens"] == 1_100
    assert (worse["f1"], worse["f1_to_text"], worse["top1"], worse["exact"]) == (
        *(0.25, -0.25, 0.75, 0.0),
    )
    low, high = worse["f1_to_text_interval"]
    assert -0.35 < low < -0.25 < high < -0.15
    assert better["compared"].keys() == {"worse"}
    seen = better["compared"]["worse"]
    assert (seen["n"], seen["f1"], seen["nll"], seen["kl_first"]) == (40, 0.25, -0.5, 0.1)
    low, high = seen["f1_interval"]
    assert 0.15 < low < 0.25 < high < 0.35
    assert not any("compared" in row for row in (text, worse))
    assert sum(part["n"] for part in text["f1_by_category"].values()) == 40


def test_a_report_puts_the_parts_of_the_questions_together(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    for path in folder_with(whole).glob("*.json"):
        file = load_scores(path)
        for number in (1, 2):
            of_part = slice(number - 1, None, 2)
            part = replace(file, scores=file.scores[of_part], compared=file.compared[of_part])
            part.save(parts / f"{path.stem}-part{number}of2.json")
    rows, expected = (make_rows(read_folder(folder), ["worse"]) for folder in (parts, whole))
    figures = ("recipe", "k", "n", "f1", "nll", "kl_first", "top1", "exact", "nll_to_text")
    assert [[row[name] for name in figures] for row in rows] == [
        [row[name] for name in figures] for row in expected
    ]
    (parts / "text-k5-part2of2.json").unlink()
    with pytest.raises(InvalidInput, match=r"text mode was not asked"):
        make_rows(read_folder(parts))


def test_parts_with_a_question_in_common_are_refused(tmp_path: Path) -> None:
    path = folder_with(tmp_path) / "a-k5.json"
    path.rename(path.with_name("a-k5-part1of2.json"))
    load_scores(path.with_name("a-k5-part1of2.json")).save(tmp_path / "a-k5-part2of3.json")
    with pytest.raises(InvalidInput, match=r"a-k5 have questions in common"):
        read_folder(tmp_path)


def test_a_recipe_is_compared_with_itself_in_another_storage_over_the_questions_both_have(
    tmp_path: Path,
) -> None:
    cache = load_scores(folder_with(tmp_path) / "a-k5.json")
    few = tuple(replace(s, nll=s.nll + 0.25) for s in cache.scores[:10])
    replace(cache, dtype="int4", scores=few).save(tmp_path / "c-k5.json")
    rows = make_rows(read_folder(tmp_path), ["better"])
    [row] = [row for row in rows if row["dtype"] == "int4"]
    assert (row["compared"]["better"]["n"], row["compared"]["better"]["nll"]) == (10, 0.25)
    lines = comparison_table(rows).splitlines()
    assert "| `better` | int4 | 5 | `better` | 10 | +0.000 [+0.000, +0.000] | +0.250 [" in lines[2]
    assert len(lines) == 2 + 3
    assert comparison_table(make_rows(read_folder(tmp_path))) == ""


def test_scores_of_two_models_are_not_put_in_one_report(tmp_path: Path) -> None:
    folder_with(tmp_path)
    other = replace(ABOUT, model_revision="tiny@2")
    ScoreFile(other, "better", "cache", (score(0),)).save(tmp_path / "z.json")
    with pytest.raises(InvalidInput, match=r"mixes scores of .*tiny@1.* and .*tiny@2"):
        read_folder(tmp_path)


def test_the_table_and_the_plot_show_every_row(tmp_path: Path) -> None:
    rows = make_rows(read_folder(folder_with(tmp_path)))
    lines = table(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert "| `worse` | int8 | 5 | 40 | 0.250 | -0.250 [" in lines[4]
    parts = category_table(rows).splitlines()
    assert parts[0].count("F1, ") == 4
    assert parts[4].startswith("| `worse` | int8 | 5 | ")
    assert "NLL less text mode" in nll_plot(rows)
    picture = ElementTree.fromstring(plot(rows))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"text", "better", "worse int8"} <= set(texts)


def test_an_interval_covers_the_mean_about_as_often_as_it_says() -> None:
    chance = random.Random(1)
    hits = 0
    for _ in range(60):
        low, high = mean_interval([chance.gauss(0.3, 1.0) for _ in range(60)])
        hits += low <= 0.3 <= high
    assert 51 <= hits <= 60
    assert mean_interval([1.0] * 5) == (1.0, 1.0)


def test_progress_off_a_terminal_is_a_line_a_tenth() -> None:
    stream = io.StringIO()
    with Progress("ask", 40, stream) as progress:
        for _ in range(40):
            progress.step()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("ask: 0/40 in")
    assert lines[-1].startswith("ask: 40/40 in")
