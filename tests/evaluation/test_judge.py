"""Judging a folder of scores, by the command and by its parts, at a real HTTP server."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Barrier
from xml.etree import ElementTree

import pytest

from inferscale_core.errors import InvalidInput, Unavailable
from inferscale_core.settings import JudgeSettings
from services.evaluation.__main__ import main
from services.evaluation.answers import save_answers
from services.evaluation.dataset import Conversation
from services.evaluation.judge.endpoint import open_endpoint
from services.evaluation.judge.folder import judge_folder
from services.evaluation.judge.judge import Judge, judged_by
from services.evaluation.judge.verdict_file import VerdictFile
from services.evaluation.judge.wording import (
    CONTROL,
    INSTRUCTION,
    Triple,
    Verdict,
    messages,
    verdict_in,
)
from services.evaluation.judged import judged_table
from services.evaluation.locomo import load_locomo
from services.evaluation.prepared import data_digest
from services.evaluation.report import comparison_table, judged_plot, make_rows, read_folder
from services.evaluation.scores import TEXT, About, ScoreFile, load_scores, score_question
from services.worker.engine.protocol import NextToken
from services.worker.scoring import PlanScore
from tests.evaluation.conversations import write_conversations
from tests.evaluation.judge_server import RIGHT, JudgeServer, Reply, by_words, dead_url

KEY = "sk-known-to-nobody"
BY_TEXT = [["Basil", " in April 2024", "seven", "hm"]] * 2
BY_RECIPE = [["Basil", "May", "", "fresh bread"], ["Basil ", "in April 2024", "", "fresh bread"]]
NUM_ASKED = 10
"""Questions that differ in what was said or in what it should have been; nothing said is none."""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("INFERSCALE_JUDGE__API_KEY", KEY)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_conversations(tmp_path / "data")


@pytest.fixture
def scores(tmp_path: Path, data: Path) -> Path:
    """A folder with text mode and a recipe, asked both conversations."""
    folder = tmp_path / "scores"
    folder.mkdir()
    conversations = load_locomo(data)
    write_scores(folder / "text-k5.json", TEXT, "", conversations, BY_TEXT)
    write_scores(folder / "better-k5.json", "better", "int8", conversations, BY_RECIPE)
    return folder


def write_scores(
    path: Path,
    mode: str,
    dtype: str,
    conversations: Sequence[Conversation],
    said: Sequence[Sequence[str]],
) -> None:
    asked = [
        (conversation, number, question, answer)
        for conversation, answers in zip(conversations, said, strict=True)
        for number, (question, answer) in enumerate(
            zip(conversation.questions, answers, strict=True)
        )
    ]
    found = [
        score_question(
            conversation.name,
            number,
            question,
            f"{conversation.name}-{number}",
            PlanScore(NextToken(1, {1: -0.1}), (-1.0,), answer),
            None,
        )
        for conversation, number, question, answer in asked
    ]
    save_answers(path, [answer for *_, answer in asked])
    about = About(data_digest(conversations), "tiny@1", "asked", 5)
    ScoreFile(about, mode, dtype, tuple(found), ({1: -0.1},) * 8 if mode == TEXT else ()).save(path)


def judged(server: JudgeServer, scores: Path, data: Path, *more: str, model: str = "judge") -> int:
    judge = ("--judge-url", server.url, "--judge-model", model)
    return main(["judge", str(scores), "--data", str(data), *judge, *more])


def rows_in(scores: Path) -> list[dict[str, object]]:
    return list(json.loads((scores / "report" / "rows.json").read_text()))


def test_every_way_of_asking_gets_its_share_of_right_answers_beside_text_modes(
    scores: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data) == 0
    text, better = rows_in(scores)
    assert (text["recipe"], text["judged"], text["judged_unclear"]) == ("text", 0.5, 2)
    assert (better["recipe"], better["judged"], better["judged_unclear"]) == ("better", 0.625, 0)
    assert better["judged_to_text"] == 0.125
    low, high = better["judged_to_text_interval"]  # type: ignore[misc]
    assert -0.6 < low < 0.125 < high < 0.8
    parts = better["judged_by_category"]
    assert isinstance(parts, dict)
    assert {name: (part["n"], part["judged"]) for name, part in parts.items()} == {
        "multi-hop": (2, 0.0),
        "temporal": (2, 0.5),
        "open-domain": (2, 1.0),
        "single-hop": (2, 1.0),
    }
    assert better["judge"] == asdict(judged_by("judge", {"temperature": 0}))
    printed = capsys.readouterr().out
    assert printed == (scores / "report" / "table.md").read_text()
    assert "| `text` | – | 5 | 8 | 0.500 [" in printed
    assert "| `better` | int8 | 5 | 8 | 0.625 [" in printed
    picture = ElementTree.parse(scores / "report" / "judged.svg")
    shown = [e.text for e in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"text", "better int8"} <= set(shown)


def test_the_judge_sees_question_given_answer_and_what_was_said_and_nothing_else(
    scores: Path, data: Path
) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data) == 0
    [asked] = [request for request in server.requests if request.said == "May"]
    assert asked.body == {
        "model": "judge",
        "temperature": 0,
        "messages": [
            {"role": "system", "content": INSTRUCTION},
            {
                "role": "user",
                "content": "Question:\nWhen did Otto get a green hive?\n\n"
                "Reference answer:\nApril 2024\n\nAnswer to mark:\nMay",
            },
        ],
    }


def test_a_verdict_is_asked_for_once_whoever_said_it_and_however_often_it_runs(
    scores: Path, data: Path
) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data) == 0
        assert server.said[0] == "the violin", "what everybody knows comes first"
        assert len(server.requests) == 1 + NUM_ASKED
        assert server.said.count("Basil") == 1
        assert "" not in server.said
        before = (scores / "report" / "table.md").read_text()
        changed_at = (scores / "text-k5.json").stat().st_mtime_ns
        assert judged(server, scores, data) == 0
        assert len(server.requests) == 1 + NUM_ASKED
        assert (scores / "report" / "table.md").read_text() == before
        assert (scores / "text-k5.json").stat().st_mtime_ns == changed_at
        assert judged(server, scores, data, model="another/judge") == 0
        assert judged(server, scores, data, "--judge-parameters", '{"temperature": null}') == 0
        assert len(server.requests) == 3 * (1 + NUM_ASKED)
        assert "temperature" not in server.requests[-1].body


def test_a_report_has_the_verdicts_without_a_judge_and_without_the_data(
    scores: Path, data: Path
) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data) == 0
    before = rows_in(scores)
    assert main(["report", str(scores)]) == 0
    assert rows_in(scores) == before


def test_a_verdict_that_was_cut_off_as_it_was_written_is_asked_for_again(
    scores: Path, data: Path
) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data) == 0
        [file] = (scores / "verdicts").iterdir()
        whole = file.read_text()
        file.write_text(whole[:-9])
        assert judged(server, scores, data) == 0
        assert len(server.requests) == 1 + NUM_ASKED + 1
        assert file.read_text() == whole


async def test_verdicts_before_a_failure_are_kept_and_scores_change_when_all_are_there(
    scores: Path, data: Path
) -> None:
    name = judged_by("judge", {})
    conversations = load_locomo(data)

    async def judge(url: str) -> None:
        async with open_endpoint(url, "", 30.0, first_wait_s=0.001) as endpoint:
            verdicts = VerdictFile(scores, name)
            one = Judge(endpoint, "judge", {}, verdicts)
            await judge_folder(scores, conversations, one, name, at_once=1)

    with JudgeServer(*[Reply(200, answered(RIGHT))] * 4, *[Reply(503)] * 6) as server:
        with pytest.raises(Unavailable):
            await judge(server.url)
        assert load_scores(scores / "text-k5.json").judged_by is None
        asked = contents(server)
        assert len(set(asked[4:10])) == 1, "one question as often as it is tried"
        await judge(server.url)
        assert len(set(contents(server))) == NUM_ASKED
        assert all(contents(server).count(one) == 1 for one in asked[:4])
    [file] = (scores / "verdicts").iterdir()
    lines = file.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 1 + NUM_ASKED
    assert load_scores(scores / "text-k5.json").judged_by == name


def contents(server: JudgeServer) -> list[str]:
    return [request.body["messages"][-1]["content"] for request in server.requests]


def answered(content: str) -> dict[str, object]:
    return {"choices": [{"message": {"content": content}}]}


def test_no_more_questions_than_wanted_are_with_the_judge_at_once(scores: Path, data: Path) -> None:
    together = Barrier(3, timeout=60)
    waited: list[str] = []

    def judge(said: str) -> str:
        """The first three questions are answered when all three are there."""
        if said != CONTROL.said and len(waited) < 3:
            waited.append(said)
            together.wait()
        return by_words(said)

    with JudgeServer(judge=judge, held_s=0.02) as server:
        assert judged(server, scores, data, "--judge-at-once", "3") == 0
    assert server.peak == 3


def test_the_key_is_sent_and_neither_kept_nor_said(
    scores: Path, data: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with JudgeServer(Reply(500), Reply(429)) as server:
        assert judged(server, scores, data) == 0
        assert {request.authorization for request in server.requests} == {f"Bearer {KEY}"}
    with JudgeServer(Reply(401)) as server:
        assert judged(server, scores, data, model="other") == 1
    printed = capfd.readouterr()
    assert "INFERSCALE_JUDGE__API_KEY" in printed.err
    assert KEY not in printed.out + printed.err + caplog.text
    kept = [path.read_text() for path in scores.rglob("*") if path.is_file()]
    assert len(kept) >= 8
    assert not any(KEY in text for text in kept)


def test_scores_and_verdicts_hold_no_text(scores: Path, data: Path) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data) == 0
    for path in (*scores.glob("*.json"), *(scores / "verdicts").iterdir()):
        assert "Basil" not in path.read_text()
    assert "Basil" in (scores / "answers" / "text-k5.json").read_text()


def test_a_model_that_does_not_know_what_everybody_knows_is_no_judge(
    scores: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer(judge=lambda said: "I cannot tell.") as server:
        assert judged(server, scores, data) == 1
        assert len(server.requests) == 1
        server.judge = by_words
        assert judged(server, scores, data) == 0, "it may be asked again"
    assert "judge_model: judge finds an answer unclear" in capsys.readouterr().err


def test_an_endpoint_that_is_not_there_is_named_before_anything_is_asked(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither an engine nor an embedder is loaded first: the model does not exist."""
    url = dead_url()
    asked = ["locomo", "--direct", "--prepared", str(prepared_file(tmp_path, data))]
    judge = ["--judge-url", url, "--judge-model", "judge"]
    assert main([*asked, "--model", "absent", "--out", str(tmp_path / "out"), *judge]) == 1
    assert f"inferscale eval: judge_url: {url} cannot be reached" in capsys.readouterr().err


def prepared_file(tmp_path: Path, data: Path) -> Path:
    from services.evaluation.prepared import save, without_vectors

    save(without_vectors(load_locomo(data)), tmp_path / "prepared.npz")
    return tmp_path / "prepared.npz"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--judge-model", "m"], "judge_url: is needed"),
        (["--judge-url", "http://host/v1"], "judge_model: is needed"),
        (["--judge-at-once", "4"], "judge_url: is needed"),
        (["--judge-url", "", "--judge-model", "m"], "judge_url: is not like"),
        (["--judge-url", "host/v1", "--judge-model", "m"], "judge_url: is not like"),
        (["--judge-url", "ftp://host", "--judge-model", "m"], "judge_url: is not like"),
        (["--judge-url", "http://host:99999", "--judge-model", "m"], "judge_url: is not like"),
        (["--judge-url", f"http://a:{KEY}@host/", "--judge-model", "m"], "judge_url: holds more"),
        (["--judge-url", f"http://host/v1?key={KEY}", "--judge-model", "m"], "judge_url: holds"),
        (["--judge-url", "http://h", "--judge-model", "m", "--judge-at-once", "0"], "judge_at_onc"),
        (["--judge-url", "http://h", "--judge-model", "m", "--judge-timeout-s", "0"], "judge_time"),
        (["--judge-url", "http://h", "--judge-model", "m", "--judge-parameters", "{"], "no JSON"),
        (["--judge-url", "http://h", "--judge-model", "m", "--judge-parameters", "[]"], "no JSON"),
        (
            ["--judge-url", "http://h", "--judge-model", "m", "--judge-parameters", '{"n": 2}'],
            "judge_parameters: may not set",
        ),
    ],
)
def test_options_that_do_not_fit_are_named_and_secrets_in_them_are_not_shown(
    tmp_path: Path,
    data: Path,
    options: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["locomo", "--direct", "--data", str(data), "--model", "absent"]
    assert main([*asked, "--out", str(tmp_path / "out"), *options]) == 1
    said = capsys.readouterr().err
    assert named in said
    assert KEY not in said
    assert not (tmp_path / "out").exists()


def test_a_key_that_no_header_can_hold_is_refused_by_its_variable(
    scores: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFERSCALE_JUDGE__API_KEY", "one\ntwo")
    with JudgeServer() as server:
        assert judged(server, scores, data) == 1
        assert server.requests == []
        said = capsys.readouterr().err
        assert "INFERSCALE_JUDGE__API_KEY: " in said
        assert "two" not in said
        monkeypatch.setenv("INFERSCALE_JUDGE__API_KEY", "")
        assert judged(server, scores, data) == 0
        assert server.requests[0].authorization is None
    assert JudgeSettings().api_key is None


def test_scores_of_other_data_or_without_their_answers_are_not_judged(
    scores: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data, "--limit", "3") == 1
        assert "data: " in capsys.readouterr().err
        save_answers(scores / "text-k5.json", ["other"] * 8)
        assert judged(server, scores, data) == 1
        assert "holds other answers than text-k5.json" in capsys.readouterr().err
        (scores / "answers" / "text-k5.json").unlink()
        assert judged(server, scores, data) == 1
        assert "text-k5.json is missing" in capsys.readouterr().err
        assert server.said == ["the violin"]


def test_verdicts_of_two_judges_are_not_compared(scores: Path, data: Path) -> None:
    with JudgeServer() as server:
        assert judged(server, scores, data) == 0
    rows = make_rows(read_folder(scores), ["better"])
    assert "judged_to_text" in rows[1]
    text = load_scores(scores / "text-k5.json")
    replace(text, judged_by=judged_by("other", {})).save(scores / "text-k5.json")
    row = make_rows(read_folder(scores))[1]
    assert row["judged"] == 0.625
    assert "judged_to_text" not in row
    assert "| 0.625 [" in judged_table([row])
    half = load_scores(scores / "better-k5.json")
    (scores / "better-k5.json").unlink()
    for number, judge in ((1, half.judged_by), (2, None)):
        part = replace(half, scores=half.scores[number - 1 :: 2], judged_by=judge)
        part.save(scores / f"better-k5-part{number}of2.json")
    assert "judged" not in make_rows(read_folder(scores))[1], "a half is not the whole"


def test_recipes_are_compared_in_judged_accuracy_where_both_were_judged(
    scores: Path, data: Path
) -> None:
    write_scores(scores / "worse-k5.json", "worse", "cache", load_locomo(data), [["May"] * 4] * 2)
    with JudgeServer() as server:
        assert judged(server, scores, data, "--against", "better") == 0
    [row] = [row for row in rows_in(scores) if row["recipe"] == "worse"]
    compared = row["compared"]
    assert isinstance(compared, dict)
    assert compared["better"]["judged"] == -0.625
    table = comparison_table(rows_in(scores))
    assert table.splitlines()[0].endswith("| judged right |")
    assert "| -0.625 [" in table


def test_a_report_without_a_judge_says_nothing_of_one(scores: Path) -> None:
    rows = make_rows(read_folder(scores), ["better"])
    assert (judged_table(rows), judged_plot(rows)) == ("", "")
    assert not any("judge" in name for row in rows for name in row)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("It names the cat.\n\nVERDICT: CORRECT", Verdict.RIGHT),
        ("It names the cat. Verdict: correct.", Verdict.RIGHT),
        ("**VERDICT:** **WRONG**\n", Verdict.WRONG),
        ("CORRECT", Verdict.RIGHT),
        ("Incorrect.", Verdict.WRONG),
        ('```json\n{\n  "label": "CORRECT"\n}\n```', Verdict.RIGHT),
        ('{"reason": "same", "label": "WRONG"}', Verdict.WRONG),
        ("<think>VERDICT: CORRECT?</think>\nVERDICT: WRONG", Verdict.WRONG),
        ("CORRECT\nor so I think", Verdict.UNCLEAR),
        ("VERDICT: CORRECT or VERDICT: WRONG?", Verdict.UNCLEAR),
        ("VERDICT: CORRECT or WRONG", Verdict.UNCLEAR),
        ("VERDICT: NOT CORRECT", Verdict.UNCLEAR),
        ("The answer is correct", Verdict.UNCLEAR),
        ("Correct?", Verdict.UNCLEAR),
        ("...", Verdict.UNCLEAR),
        ("", Verdict.UNCLEAR),
    ],
)
def test_a_verdict_is_what_the_last_line_says_without_doubt(reply: str, verdict: Verdict) -> None:
    assert verdict_in(reply) is verdict


def test_triples_differ_where_their_texts_do() -> None:
    one, other = Triple("a", "b c", "d"), Triple("a b", "c", "d")
    assert one.digest != other.digest
    assert one.digest == replace(other, question="a", gold="b c").digest
    assert messages(one) != messages(other)


def test_a_file_that_holds_no_verdicts_is_refused(tmp_path: Path) -> None:
    name = judged_by("org/judge:7b", {})
    VerdictFile(tmp_path, name).add(Triple("a", "b", "c"), Verdict.WRONG)
    [path] = (tmp_path / "verdicts").iterdir()
    assert path.name.startswith("org-judge-7b-")
    assert VerdictFile(tmp_path, name).get(Triple("a", "b", "c")) is Verdict.WRONG
    path.write_text('{}\n["digest", "maybe"]\n')
    with pytest.raises(InvalidInput, match="holds no verdicts"):
        VerdictFile(tmp_path, name)
