"""The command `inferscale` starts the module of its first argument, with what belongs to it."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from services import cli


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What modules were started with, the module's name first."""
    calls: list[list[str]] = []

    def run_module(name: str, **_: Any) -> None:
        assert sys.argv[0] == name
        calls.append(list(sys.argv))

    monkeypatch.setattr(cli.runpy, "run_module", run_module)
    return calls


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["inferscale", *arguments])
    cli.main()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["worker"], ["services.worker"]),
        (["migrate"], ["migrations", "upgrade"]),
        (
            ["verify", "model", "--out", "v.json"],
            ["services.verification", "model", "--out", "v.json"],
        ),
        (["eval", "report", "scores"], ["services.evaluation", "report", "scores"]),
        (["eval", "--help"], ["services.evaluation", "--help"]),
    ],
)
def test_a_command_starts_its_module(
    monkeypatch: pytest.MonkeyPatch,
    started: list[list[str]],
    arguments: list[str],
    expected: list[str],
) -> None:
    run(monkeypatch, *arguments)
    assert started == [expected]


@pytest.mark.parametrize(
    "arguments", [["worker", "--port", "1"], ["migrate", "down"], ["nothing"], []]
)
def test_what_a_command_does_not_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, started: list[list[str]], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(monkeypatch, *arguments)
    assert exit_.value.code == 2
    assert started == []


def test_every_command_has_a_module_that_can_be_run() -> None:
    for command in cli.COMMANDS.values():
        assert importlib.util.find_spec(f"{command.module}.__main__"), command.module
