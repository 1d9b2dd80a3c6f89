"""The demo says what the machine lacks before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from examples import preflight
from examples.demo import main
from examples.preflight import (
    GB,
    NotReady,
    WrongSetting,
    check_disk,
    check_memory,
    check_packages,
    check_port,
    engine_dtype,
    read_settings,
)

GIB = (1 << 30) / GB


def memory(monkeypatch: pytest.MonkeyPatch, total_gb: float, available_gb: float) -> None:
    monkeypatch.setattr(preflight, "memory_bytes", lambda: (total_gb * GB, available_gb * GB))


def test_a_taken_port_is_named_with_the_setting_that_changes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(NotReady, match=rf"port {port} is taken.*SOME_SETTING=127\.0\.0\.1"):
            check_port(f"127.0.0.1:{port}", "SOME_SETTING")
    check_port(f"127.0.0.1:{port}", "SOME_SETTING")


def test_a_setting_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERSCALE_ENGINE__NOPE", "1")
    with pytest.raises(WrongSetting, match="there is no setting INFERSCALE_ENGINE__NOPE"):
        read_settings()


def test_a_setting_out_of_bounds_is_named_with_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERSCALE_CONTROL__LEASE_S", "0")
    with pytest.raises(WrongSetting, match=r"CONTROL__LEASE_S is '0': .*greater than or equal"):
        read_settings()


@pytest.mark.parametrize("address", ["nonsense", "localhost:", ":7700", "localhost:99999"])
@pytest.mark.parametrize("name", ["INFERSCALE_CONTROL__LISTEN", "INFERSCALE_WORKER__LISTEN"])
def test_an_address_without_host_or_port_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, address: str
) -> None:
    monkeypatch.setenv(name, address)
    with pytest.raises(WrongSetting, match=rf"{name} is '{address}': must be host:port"):
        read_settings()


def test_the_demo_ends_with_code_2_and_a_sentence_when_a_setting_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INFERSCALE_ENGINE__NOPE", "1")
    assert main([]) == 2
    told = capsys.readouterr().err
    assert told.startswith("The demo cannot start: there is no setting INFERSCALE_ENGINE__NOPE.")
    assert list(tmp_path.iterdir()) == []


def test_a_machine_with_less_than_8_gb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 7.4, 7.4)
    with pytest.raises(NotReady, match=r"with 8 GB of memory; this one has 7\.4 GB\. Run it on a"):
        check_memory()


def test_a_machine_sold_with_8_gb_is_large_enough_with_some_swap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """7.6 GiB in all, of which an idle system leaves 6.5; the rest of what is needed is swap."""
    memory(monkeypatch, 7.6 * GIB, 6.5 * GIB + 1.5)
    assert check_memory() == pytest.approx(6.5 * GIB + 1.5)


def test_too_little_free_memory_is_told_in_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 16, 3.2)
    with pytest.raises(NotReady, match=r"nothing else uses .*finds 3\.2 GB\. Close"):
        check_memory()


def test_the_memory_of_this_machine_is_found() -> None:
    total, available = preflight.memory_bytes()
    assert 0 < available <= total


@pytest.mark.parametrize(
    ("flags", "free_gb", "has_gpu", "expected"),
    [
        ("fma avx avx2", 25.0, False, "float32"),
        ("fma avx avx2", 12.0, False, "auto"),
        ("fma avx avx2", 25.0, True, "auto"),
        ("fma avx avx2 avx512f avx512bw", 25.0, False, "auto"),
        (None, 25.0, False, "auto"),
    ],
    ids=["no AVX-512", "little memory", "a GPU", "AVX-512", "not x86"],
)
def test_float32_is_for_cpus_that_emulate_bfloat16(
    flags: str | None,
    free_gb: float,
    has_gpu: bool,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    cpu_info = tmp_path / "cpuinfo"
    name = "Features" if flags is None else "flags"
    core = f"processor\t: 0\n{name}\t\t: fpu {flags}\nbugs\t\t: spectre_v1\n"
    cpu_info.write_text(f"{core}\n{core}")
    monkeypatch.setattr(preflight, "CPU_INFO", cpu_info)
    monkeypatch.setattr(preflight, "GPU", tmp_path if has_gpu else tmp_path / "none")
    assert engine_dtype(free_gb) == expected


def test_a_machine_that_does_not_tell_its_cpu_keeps_the_models_dtype(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(preflight, "CPU_INFO", tmp_path / "none")
    assert engine_dtype(25.0) == "auto"


def test_the_model_counts_only_while_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = preflight.shutil.disk_usage("/")._replace(free=3_000_000_000)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: usage)
    assert check_disk(Path("/"), has_model=True) == 3.0
    with pytest.raises(NotReady, match="6 GB of disk"):
        check_disk(Path("/"), has_model=False)


def test_disk_is_checked_for_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert check_disk(tmp_path / "a" / "b", has_model=True) > 0


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_packages()
    monkeypatch.setattr(preflight, "PACKAGES", ("torch", "no_such_package"))
    with pytest.raises(NotReady, match="missing: no_such_package"):
        check_packages()
