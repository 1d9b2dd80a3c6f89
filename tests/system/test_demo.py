"""The demo as a newcomer runs it: real processes, the packaged model, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.system, pytest.mark.engine]


HEARS_CTRL_C = ("env", "--default-signal=INT")
"""Also where these tests run in the background of a shell, which has its jobs ignore it."""


class RunningDemo:
    """A demo in a folder of its own, in which all that it starts works. vLLM's processes overwrite
    their names and environments; the folder stays."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.results = folder / ".demo" / "results.json"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*HEARS_CTRL_C, sys.executable, "-m", "examples.demo", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, text: str, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while text not in self.output.read_text():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.2)

    def wait_for_process(self, title: str, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not any(title in command for command in self.processes_left()):
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.processes_left()
            time.sleep(0.2)

    def processes_left(self) -> list[str]:
        """Command lines of processes that work in the folder and are not the demo itself."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                works_in = (entry / "cwd").readlink()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if works_in.is_relative_to(self.folder):
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
        return found

    def assert_nothing_left(self) -> None:
        deadline = time.monotonic() + 10
        while self.processes_left() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert self.processes_left() == []


@pytest.mark.timeout(1200)
def test_it_encodes_every_fact_and_answers_faster_from_injected_ones(tmp_path: Path) -> None:
    demo = RunningDemo(tmp_path, "--questions", "2", "--k", "5", "50")
    assert demo.process.wait(1100) == 0, demo.output.read_text()
    demo.assert_nothing_left()
    shown = demo.output.read_text()
    assert "58 facts" in shown
    assert "hazelnut" in shown.partition("1/2")[2].partition("2/2")[0].lower()
    assert "Bologna" in shown.partition("2/2")[2]
    few, many = json.loads(demo.results.read_text())
    assert (few["k"], few["facts_injected"]) == (5, 5)
    assert (many["k"], many["facts_injected"]) == (50, 50)
    assert many["tokens_injected"] > 5 * few["tokens_injected"]
    assert many["tokens_prefilled"] == few["tokens_prefilled"]
    assert many["ttft_text_s"] > 2 * many["ttft_injected_s"]


@pytest.mark.timeout(300)
def test_ctrl_c_in_the_middle_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = RunningDemo(tmp_path)
    demo.wait_for("Load the model", 120)
    demo.wait_for_process("VLLM::EngineCore", 120)
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(60) == 130
    demo.assert_nothing_left()
    assert "nothing is left running" in demo.output.read_text()
