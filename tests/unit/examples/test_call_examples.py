"""What a demo that stays up prints can be pasted, and says what works."""

from __future__ import annotations

import json
import shlex

import pytest

from examples import demo
from examples.demo import call_examples
from examples.processes import EndedBySignal
from examples.story import load_story
from inferscale_core import client
from inferscale_core.client import Delta


@pytest.fixture
def shown() -> str:
    return call_examples("127.0.0.1:7700", "isk_secret", load_story())


def test_the_python_example_runs_as_it_is_printed(
    shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    class Answering:
        def __init__(self, target: str, api_key: str) -> None:
            asked.append((target, api_key))

        def __enter__(self) -> Answering:
            return self

        def __exit__(self, *_: object) -> None: ...

        def chat(self, user_id: str, question: str) -> list[Delta]:
            asked.append((user_id, question))
            return [Delta("In "), Delta("June.")]

    monkeypatch.setattr(client, "InferScale", Answering)
    source = shown.partition("From Python")[2].partition("\n")[2].partition("With grpcurl")[0]
    exec(compile(source.strip(), "pasted", "exec"), {})
    assert asked[0] == ("127.0.0.1:7700", "isk_secret")
    assert asked[1][0] == load_story().user_id
    assert capsys.readouterr().out == "In June."


def test_the_command_for_grpcurl_is_one_command_of_a_shell(shown: str) -> None:
    words = shlex.split(shown.partition("With grpcurl:")[2])
    assert words[0] == "grpcurl"
    assert "authorization: Bearer isk_secret" in words
    assert json.loads(words[words.index("-d") + 1])["user_id"] == load_story().user_id
    assert words[-2:] == ["127.0.0.1:7700", "inferscale.v1.ChatService/Chat"]


@pytest.mark.parametrize(("keep", "code"), [(True, 0), (False, 143)])
def test_sigterm_is_an_orderly_end_of_a_demo_that_stays_up(
    keep: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(self: demo.Demo, *, keep: bool) -> None:
        raise EndedBySignal(15)

    monkeypatch.setattr(demo.Demo, "run", end)
    assert demo.main(["--keep"] if keep else []) == code
    assert "nothing is left running" in capsys.readouterr().out
