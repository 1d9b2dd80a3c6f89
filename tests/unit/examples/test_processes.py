"""Services started by the demo end with it, whatever they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples import processes
from examples.processes import Service, ServiceFailed, ended_by_signals

_PARENT_OF_A_CHILD = """
import subprocess, sys, time, pathlib
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("child.pid").write_text(str(child.pid))
time.sleep(600)
"""


def start(
    folder: Path, source: str, monkeypatch: pytest.MonkeyPatch, grace_s: float = 0.0
) -> Service:
    (folder / "some_service.py").write_text(source)
    monkeypatch.chdir(folder)
    return Service(
        "some service",
        "some_service",
        {**os.environ, "GREETING": "hello"},
        folder / "log",
        grace_s=grace_s,
    )


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)
    return path.read_text()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_stop_ends_the_service_and_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(tmp_path, _PARENT_OF_A_CHILD, monkeypatch)
    child = int(wait_for(tmp_path / "child.pid"))
    service.require_running()
    service.stop()
    service.stop()
    assert wait_until_gone(service.pid)
    assert wait_until_gone(child)


def test_a_service_is_told_to_stop_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told again while Python is taken down, it would end by the signal and not as it means to."""
    counting = (
        "import pathlib, signal, sys, time\n"
        "folder = pathlib.Path(__file__).parent\n"
        "def count(*_):\n"
        "    with (folder / 'signals').open('a') as signals:\n"
        "        signals.write('x')\n"
        "signal.signal(signal.SIGTERM, count)\n"
        "(folder / 'ready').write_text('yes')\n"
        "while not (folder / 'end').exists():\n"
        "    time.sleep(0.02)\n"
    )
    service = start(tmp_path, counting, monkeypatch)
    wait_for(tmp_path / "ready")
    service.begin_to_stop()
    wait_for(tmp_path / "signals")
    service.begin_to_stop()
    (tmp_path / "end").touch()
    service.stop()
    assert (tmp_path / "signals").read_text() == "x"
    assert service._process.returncode == 0


def test_services_end_together_and_not_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither ends before both have been told."""
    slow = (
        "import pathlib, signal, sys, time\n"
        "folder = pathlib.Path(__file__).parent\n"
        "def leave(*_):\n"
        "    (folder / 'told').write_text('yes')\n"
        "    while not (folder.parent / 'go').exists():\n"
        "        time.sleep(0.02)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "(folder / 'ready').write_text('yes')\n"
        "time.sleep(600)\n"
    )
    services = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        services.append(start(tmp_path / name, slow, monkeypatch))
        wait_for(tmp_path / name / "ready")
    for service in services:
        service.begin_to_stop()
    for name in ("one", "other"):
        wait_for(tmp_path / name / "told")
    (tmp_path / "go").touch()
    for service in services:
        service.stop()
    assert [service._process.returncode for service in services] == [0, 0]


def test_a_service_that_does_not_end_is_killed_after_its_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = (
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('ready').write_text('yes')\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(processes, "STOP_BEYOND_GRACE_S", 0.3)
    service = start(tmp_path, deaf, monkeypatch, grace_s=0.4)
    wait_for(tmp_path / "ready")
    before = time.monotonic()
    service.stop()
    assert time.monotonic() - before >= 0.7
    assert service._process.returncode == -signal.SIGKILL


def test_the_last_line_of_a_log_is_what_was_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "print('first'); print('10% done\\r90% done\\n')"
    service = start(tmp_path, source, monkeypatch)
    service._process.wait(20)
    assert service.last_line() == "90% done"
    service.stop()


def test_a_service_that_ended_is_explained_by_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os, sys; print(os.environ['GREETING'], 'and goodbye'); sys.exit(3)"
    service = start(tmp_path, source, monkeypatch)
    service._process.wait(20)
    with pytest.raises(ServiceFailed, match=r"(?s)exit code 3.*hello and goodbye"):
        service.require_running()
    service.stop()


def test_a_service_ends_when_the_demo_is_killed_outright(tmp_path: Path) -> None:
    (tmp_path / "some_service.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path('service.pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    demo = (
        "import os, sys, time, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "from examples.processes import Service\n"
        "Service('s', 'some_service', os.environ, pathlib.Path('log'))\n"
        "time.sleep(600)\n"
    )
    root = Path(__file__).resolve().parents[3]
    parent = subprocess.Popen([sys.executable, "-c", demo, str(root)], cwd=tmp_path)
    service = int(wait_for(tmp_path / "service.pid"))
    parent.kill()
    parent.wait()
    assert wait_until_gone(service)


def test_sigterm_runs_every_finally() -> None:
    cleaned_up = []

    def demo() -> None:
        with ended_by_signals():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            finally:
                cleaned_up.append(True)

    with pytest.raises(SystemExit) as left:
        demo()
    assert cleaned_up
    assert left.value.code == 128 + signal.SIGTERM
