"""The same questions through a whole service and in one process: real Postgres, control, worker,
vLLM and the packaged embedder, with a random Llama of three layers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from inferscale_core.client import AsyncOperator
from inferscale_core.memory.recipes import DEFAULT_RECIPE
from services.evaluation.scores import TEXT, ScoreFile, load_scores
from tests.control.control_process import PACKAGED_DIMENSION, ControlProcess, environment
from tests.control.harness import OPERATOR_TOKEN
from tests.control.worker_process import MODEL, WorkerProcess, save_model
from tests.evaluation.conversations import write_conversations
from tests.evaluation.judge_server import JudgeServer
from tests.fixtures_postgres import Database

pytestmark = pytest.mark.engine

K = 5
ENGINE = {
    "SERVED_NAME": MODEL,
    "DTYPE": "float32",
    "MAX_MODEL_LEN": "5120",
    "MAX_NUM_SEQS": "16",
    "KV_CACHE_BYTES": str(64 << 20),
    "ARENA_BYTES": str(32 << 20),
    "ENFORCE_EAGER": "true",
}


async def evaluate(*arguments: str) -> list[str]:
    """`inferscale eval locomo` as a process of its own; returns the lines of its tables."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "services.cli", "eval", "locomo", "--k", str(K), "--at-once", "4"),
        *("--max-tokens", "6"),
        *arguments,
        env={
            **os.environ,
            "INFERSCALE_EMBEDDER__DEVICE": "cpu",
            **{f"INFERSCALE_ENGINE__{name}": value for name, value in ENGINE.items()},
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()[-4_000:]
    # The engine's own warnings stand among them.
    return [line for line in printed.decode().splitlines() if line.startswith("|")]


def scores_in(folder: Path, mode: str) -> ScoreFile:
    (file,) = (file for file in map(load_scores, folder.glob("*.json")) if file.mode == mode)
    return file


async def test_both_drivers_ask_the_same_tokens_and_score_alike(
    database_factory: Callable[..., Database], tmp_path: Path
) -> None:
    data = write_conversations(tmp_path / "data")
    model = save_model(tmp_path)
    database = database_factory(PACKAGED_DIMENSION)
    async with AsyncExitStack() as stack:
        control = ControlProcess(tmp_path / "control.log", environment(database))
        stack.push_async_callback(control.kill)
        address = await control.start()
        operator = await stack.enter_async_context(AsyncOperator(address, OPERATOR_TOKEN))
        created = await operator.create_tenant("acme", [MODEL])
        key = tmp_path / "key"
        key.write_text(created.api_key)
        worker = WorkerProcess(address, model, tmp_path / "worker.log")
        stack.push_async_callback(worker.kill)
        await worker.start()
        service = ("--api", address, "--api-key-file", str(key), "--data", str(data))
        await evaluate(*service, "--model", MODEL, "--out", str(tmp_path / "api"))
    await evaluate(
        *("--direct", "--data", str(data), "--model", str(model)),
        *("--out", str(tmp_path / "direct")),
    )

    for mode in (TEXT, DEFAULT_RECIPE.name):
        asked, direct = (scores_in(tmp_path / way, mode) for way in ("api", "direct"))
        assert len(asked.scores) == 8
        assert asked.about == direct.about
        for one, other in zip(asked.scores, direct.scores, strict=True):
            assert (one.conversation, one.number) == (other.conversation, other.number)
            assert (one.prompt, one.said) == (other.prompt, other.said)
            assert one.top_token == other.top_token
            assert one.f1 == other.f1
            assert one.nll == pytest.approx(other.nll, abs=2e-3)
            assert one.kl == pytest.approx(other.kl, abs=2e-3)
    rows = json.loads((tmp_path / "direct" / "report" / "rows.json").read_text())
    assert [(row["recipe"], row["k"], row["dtype"], row["n"]) for row in rows] == [
        (TEXT, K, "", 8),
        (DEFAULT_RECIPE.name, K, "cache", 8),
    ]
    assert rows[1]["kl_first"] > 0, "or text mode was asked twice"


async def test_a_run_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    data, model = write_conversations(tmp_path / "data"), save_model(tmp_path)
    run = ("--direct", "--data", str(data), "--model", str(model), "--out", str(tmp_path / "out"))
    with JudgeServer() as judge:
        await run_twice(tmp_path, (*run, "--judge-url", judge.url, "--judge-model", "judge"))
    asked = [request.body["messages"][-1]["content"] for request in judge.requests]
    assert len(asked) == len(set(asked)) > 1, "no verdict is asked for twice"


async def run_twice(tmp_path: Path, run: tuple[str, ...]) -> None:
    """The second time one file of scores is missing."""
    first = await evaluate(*run, "--recipes", "window-0,header-only", "--text-again")
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.json")}
    assert len(kept) == 4
    assert max(s.kl for s in scores_in(tmp_path / "out", "text-again").scores) < 1e-4
    gone = tmp_path / "out" / f"header-only-cache-k{K}.json"
    gone.unlink()
    again = await evaluate(*run, "--recipes", "window-0,header-only")
    assert len(first) == 3 * (2 + 4), "three tables with a row for each file"
    assert again == first
    assert gone.exists()
    for path, changed_at in kept.items():
        assert path == gone or path.stat().st_mtime_ns == changed_at
