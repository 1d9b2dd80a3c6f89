from __future__ import annotations

import ast
import shutil
import sys
import time
from pathlib import Path

import pytest

from examples import preflight
from inferscale_core.settings import EngineSettings
from scripts import set_up

GB = set_up.GB
GIB = (1 << 30) / GB


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A root of its own, so that no test touches the project's environment."""
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "torch.txt").write_text("torch==2.13.0\n")
    monkeypatch.setattr(set_up, "ROOT", tmp_path)
    monkeypatch.setattr(set_up, "VENV", venv)
    monkeypatch.setattr(set_up, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(set_up, "LOG", venv / "set_up.log")
    monkeypatch.delenv("INFERSCALE_ENGINE__MODEL", raising=False)
    monkeypatch.setenv("INFERSCALE_ENGINE__MODEL_CACHE_DIR", str(tmp_path / "models"))
    return tmp_path


def a_step() -> set_up.Step:
    return set_up.Step("cpu", "packages", ("requirements/torch.txt",), lambda: None)


def memory(monkeypatch: pytest.MonkeyPatch, total_gb: float, available_gb: float) -> None:
    monkeypatch.setattr(set_up, "memory_bytes", lambda: (total_gb * GB, available_gb * GB))


def free_disk(monkeypatch: pytest.MonkeyPatch, gigabytes: float) -> None:
    usage = shutil.disk_usage("/")._replace(free=int(gigabytes * GB))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def test_a_step_is_done_until_what_decides_it_changes(elsewhere: Path) -> None:
    step = a_step()
    assert not step.is_done()
    step.mark_done()
    assert step.is_done()
    (elsewhere / "requirements" / "torch.txt").write_text("torch==2.14.0\n")
    assert not step.is_done()


def test_a_step_is_done_again_when_the_environment_is_gone(elsewhere: Path) -> None:
    step = a_step()
    step.mark_done()
    (elsewhere / ".venv" / "bin" / "python").unlink()
    assert not step.is_done()


def test_a_step_that_fails_is_not_marked_done() -> None:
    def fail() -> None:
        raise set_up.SetUpError("no network")

    step = set_up.Step("cpu", "packages", ("requirements/torch.txt",), fail)
    with pytest.raises(set_up.SetUpError):
        set_up.carry_out(step, "set-up 1/1")
    assert not step.is_done()


@pytest.mark.parametrize(
    ("has_cpu_build", "free_gb", "enough"),
    [(True, 10.1, True), (True, 9.9, False), (False, 15.1, True), (False, 14.9, False)],
)
def test_the_demo_asks_for_10_gb_of_disk_and_15_with_cuda(
    monkeypatch: pytest.MonkeyPatch, has_cpu_build: bool, free_gb: float, enough: bool
) -> None:
    monkeypatch.setattr(set_up, "finds_cpu_build", lambda: has_cpu_build)
    free_disk(monkeypatch, free_gb)
    todo = {"venv", "torch", "cpu", "project"}
    if enough:
        set_up.check_disk("demo", todo)
        return
    with pytest.raises(set_up.SetUpError, match=f"{10 if has_cpu_build else 15} GB of free disk"):
        set_up.check_disk("demo", todo)


def test_what_is_there_already_needs_no_disk(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    free_disk(monkeypatch, 0.5)
    with pytest.raises(set_up.SetUpError, match="5 GB of free disk"):
        set_up.check_disk("demo", set())
    (elsewhere / "models" / "qwen").mkdir(parents=True)
    (elsewhere / "models" / "qwen" / "model.safetensors").touch()
    set_up.check_disk("demo", set())


def test_another_model_needs_no_room_for_the_packaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    free_disk(monkeypatch, 0.5)
    monkeypatch.setenv("INFERSCALE_ENGINE__MODEL", "some/model")
    set_up.check_disk("demo", set())


def test_the_model_is_looked_for_where_the_settings_keep_it() -> None:
    assert EngineSettings().model_cache_dir == set_up.MODEL_CACHE_DIR


@pytest.mark.parametrize("total_gb", [4.0, 7.4])
def test_a_small_machine_is_refused_and_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, total_gb: float
) -> None:
    memory(monkeypatch, total_gb, 3)
    with pytest.raises(set_up.SetUpError, match=rf"8 GB of memory are needed.*{total_gb} GB"):
        set_up.check_memory("test")


def test_a_machine_sold_with_8_gb_is_large_enough_with_some_swap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """7.6 GiB in all, of which an idle system leaves 6.5; the rest of what is needed is swap."""
    memory(monkeypatch, 7.6 * GIB, 6.5 * GIB + 1.5)
    set_up.check_memory("demo")


def test_only_the_demo_needs_the_memory_to_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 16, 3)
    set_up.check_memory("test")
    with pytest.raises(set_up.SetUpError, match=r"3\.0 GB are free now\. End other programs"):
        set_up.check_memory("demo")


def test_the_bounds_on_memory_are_those_of_the_demo() -> None:
    for name in ("MACHINE_MEMORY_GB", "FREE_MEMORY_GB", "MOST_SWAP_GB"):
        assert getattr(set_up, name) == getattr(preflight, name), name


def test_progress_counts_what_pip_has_installed_of_the_packages_it_lists(elsewhere: Path) -> None:
    packages = elsewhere / ".venv" / "lib" / "python3.11" / "site-packages"
    for name in ("alpha-1.dist-info", "beta-2.dist-info"):
        (packages / name).mkdir(parents=True)
        (packages / name / "METADATA").touch()
    set_up.LOG.write_text("Collecting gamma\nInstalling collected packages: alpha, beta, gamma\n\n")
    assert set_up.what_pip_is_at(began_at=0) == "installing, 2 of 3 packages"
    assert set_up.what_pip_is_at(began_at=time.time() + 60) == "installing, 0 of 3 packages"


def test_progress_shows_what_pip_said_last(elsewhere: Path) -> None:
    set_up.LOG.write_text("\n$ python -m pip install\n")
    assert set_up.what_pip_is_at(began_at=0) == "starting"
    set_up.LOG.write_text("Collecting alpha\n  WARNING: Retrying\n")
    assert set_up.what_pip_is_at(began_at=0) == "Collecting alpha"


@pytest.mark.parametrize("version", [(3, 10, 9), (3, 15, 0)])
def test_another_python_is_refused_with_the_way_to_name_one(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(set_up.SetUpError, match=r"make PYTHON=python3\.11 demo"):
        set_up.check_python()


def test_an_old_python_can_read_the_script_far_enough_to_refuse() -> None:
    ast.parse(Path(set_up.__file__).read_text(), feature_version=(3, 8))


def test_a_failing_pip_shows_its_last_lines_and_where_the_rest_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(set_up, "PYTHON", Path(sys.executable))
    with pytest.raises(set_up.SetUpError) as caught:
        set_up.pip("install", "--no-index", "--no-deps", "no-such-package-of-ours==1")
    assert "no-such-package-of-ours" in str(caught.value)
    assert str(set_up.LOG) in str(caught.value)
    assert "finished steps are kept" in str(caught.value)
