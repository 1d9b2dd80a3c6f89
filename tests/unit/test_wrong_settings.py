"""The real commands with settings that are wrong: a line for each, and nothing else.

They end before anything slow is loaded, so no database and no engine is needed.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from inferscale_core.embedding.load import load_model
from inferscale_core.settings import EmbedderSettings, WrongSettings
from services import cli

SECRET = "hunter2"
URL = f"postgresql+psycopg://app:{SECRET}@localhost/none"
TOKENS = {
    "INFERSCALE_CONTROL__INTERNAL_TOKEN": SECRET,
    "INFERSCALE_WORKER__INTERNAL_TOKEN": SECRET,
}
DATABASE = {"INFERSCALE_DATABASE__URL": URL, "INFERSCALE_DATABASE__ADMIN_URL": URL}

Started = Callable[..., tuple[int, list[str]]]


def told(command: list[str], **environment: str) -> tuple[int, list[str]]:
    """Exit code, and the lines of stderr, of the command as a process."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("INFERSCALE_")}
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", *command],
        env={**inherited, **TOKENS, **DATABASE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == ""
    assert SECRET not in done.stderr
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("command", ["control", "worker", "migrate"])
def test_every_wrong_setting_has_a_line_with_its_name_and_what_it_may_be(command: str) -> None:
    wrong = {
        "INFERSCALE_CONTROL__LEASE_S": "0",
        "INFERSCALE_DATABASE__POOL_SIZE": "many",
        "INFERSCALE_ENGINE__DTYPE": "int3",
        "INFERSCALE_WORKER__LISTEN": "7710",
        "INFERSCALE_WORKER__INTERNAL_TOKENS": SECRET,
    }
    assert told([command], **wrong) == (
        2,
        [
            f"inferscale {command}: {problem}"
            for problem in (
                "INFERSCALE_DATABASE__POOL_SIZE is 'many': input should be a valid integer, "
                "unable to parse string as an integer",
                "INFERSCALE_CONTROL__LEASE_S is '0': input should be greater than or equal to 1",
                "INFERSCALE_WORKER__LISTEN is '7710': must be host:port",
                "there is no setting INFERSCALE_WORKER__INTERNAL_TOKENS",
                "INFERSCALE_ENGINE__DTYPE is 'int3': input should be 'auto', 'bfloat16', "
                "'float16' or 'float32'",
            )
        ],
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Started:
    """As `told`, of a command's `main` in this process."""

    def started(command: str, **environment: str) -> tuple[int, list[str]]:
        for name in [name for name in os.environ if name.startswith("INFERSCALE_")]:
            monkeypatch.delenv(name)
        for name, value in {**TOKENS, **DATABASE, **environment}.items():
            if value:
                monkeypatch.setenv(name, value)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr(sys, "argv", [command, *cli.COMMANDS[command].arguments])
        module = importlib.import_module(f"{cli.COMMANDS[command].module}.__main__")
        code = module.main()
        out, err = capsys.readouterr()
        assert out == ""
        assert SECRET not in err
        return code, err.splitlines()

    return started


@pytest.mark.parametrize("name", ["INFERSCALE_DATABASE", "inferscale_database"])
@pytest.mark.parametrize("value", [SECRET, f'{{"url": "{SECRET}"'])
def test_a_section_that_is_no_json_is_named(started: Started, name: str, value: str) -> None:
    assert started("control", **{name: value}) == (
        2,
        [
            "inferscale control: INFERSCALE_DATABASE is not JSON; give each setting by itself, "
            "as INFERSCALE_DATABASE__<FIELD>"
        ],
    )


@pytest.mark.parametrize(
    ("name", "size"), [("ARENA", 1 << 30), ("ARENA", 1 << 34), ("KV_CACHE", 1 << 34)]
)
def test_a_share_beside_bytes_is_refused_with_both_names(
    started: Started, name: str, size: int
) -> None:
    """The default's own value as well: whoever wrote it down means it. Beside a cache in bytes
    nobody knows what vLLM leaves."""
    sizes = {
        f"INFERSCALE_ENGINE__{name}_BYTES": str(size),
        "INFERSCALE_ENGINE__ARENA_SHARE": "0.8",
    }
    problem = f"INFERSCALE_ENGINE: only one of {' and '.join(sizes)} may be set"
    assert started("worker", **sizes) == (2, [f"inferscale worker: {problem}"])


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("control", ["INFERSCALE_CONTROL__INTERNAL_TOKEN", "INFERSCALE_DATABASE__URL"]),
        ("worker", ["INFERSCALE_WORKER__INTERNAL_TOKEN"]),
        ("migrate", ["INFERSCALE_DATABASE__ADMIN_URL", "INFERSCALE_DATABASE__URL"]),
    ],
)
def test_all_that_must_be_set_is_named_at_once(
    started: Started, command: str, names: list[str]
) -> None:
    found = started(command, **dict.fromkeys([*TOKENS, *DATABASE], ""))
    assert found == (2, [f"inferscale {command}: {name} must be set" for name in names])


@pytest.mark.parametrize(
    "url", [SECRET, f"postgresql+psycopg://app:{SECRET}@host:port/db", f"mysql://app:{SECRET}@h/d"]
)
@pytest.mark.parametrize("command", ["control", "migrate"])
def test_a_database_url_is_refused_without_a_word_of_it(
    started: Started, command: str, url: str
) -> None:
    code, [line] = started(command, INFERSCALE_DATABASE__URL=url)
    assert code == 2
    assert line.startswith(f"inferscale {command}: INFERSCALE_DATABASE__URL ")
    assert "postgresql+psycopg://role:password@host/database" in line


@pytest.mark.parametrize("command", ["control", "worker"])
def test_a_recipe_that_does_not_exist_is_named_with_those_that_do(
    started: Started, command: str
) -> None:
    code, [line] = started(command, INFERSCALE_RECIPE__NAME="progressive")
    assert code == 2
    assert line.startswith(f"inferscale {command}: INFERSCALE_RECIPE__NAME: ")
    assert "'progressive'" in line
    assert "progressive-32" in line


def test_a_device_that_is_not_there_is_named_before_the_embedder_is_loaded() -> None:
    with pytest.raises(WrongSettings, match="INFERSCALE_EMBEDDER__DEVICE is 'abacus': "):
        load_model(EmbedderSettings(device="abacus"))


def test_tools_say_so_too_and_a_verdict_that_was_not_found_is_no_negative_one() -> None:
    wrong = {"INFERSCALE_ENGINE__MAX_NUM_SEQS": "0"}
    assert told(["verify", "model"], **wrong)[0] == 1
    assert told(["eval", "prepare", "--data", ".", "--out", "x"], **wrong)[0] == 2
