"""How large the arena of a rank becomes, by what an operator set and what the machine has."""

from __future__ import annotations

from pathlib import Path

import pytest
from vllm.platforms import current_platform

from inferscale_core.ids import ModelRevision
from inferscale_core.memory.recipes import Storage
from inferscale_core.settings import EngineSettings, Settings, WrongSettings
from services.worker.app import running_engine
from services.worker.engine.arena_bytes import arena_bytes
from services.worker.engine.host import _engine_arguments
from services.worker.engine.model_files import ModelFiles

GPU_BYTES = 150_754_820_096
"""Total memory of an H200 as its driver says it."""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each GPU of the machine, to be filled in."""
    found: list[int] = []
    monkeypatch.setattr(current_platform, "is_cpu", lambda: False)
    monkeypatch.setattr(current_platform, "get_device_total_memory", found.__getitem__)
    return found


def test_a_share_is_of_what_vllm_leaves_and_never_more(gpus: list[int]) -> None:
    gpus.append(GPU_BYTES)
    # 0.85 of it is 128,141,597,081.6 bytes, and vLLM rounds up.
    assert arena_bytes(EngineSettings(arena_share=1.0)) == GPU_BYTES - 128_141_597_082
    assert arena_bytes(EngineSettings(arena_share=0.5)) == (GPU_BYTES - 128_141_597_082) // 2
    quarter = EngineSettings(arena_share=0.75, gpu_memory_utilization=0.75)
    assert arena_bytes(quarter) == GPU_BYTES * 3 // 16


def test_without_a_share_the_bytes_count_and_no_gpu_is_asked(gpus: list[int]) -> None:
    assert gpus == []
    assert arena_bytes(EngineSettings()) == 1 << 30
    assert arena_bytes(EngineSettings(arena_bytes=5 << 30)) == 5 << 30


def test_every_rank_has_room_for_the_share_of_the_smallest_gpu(gpus: list[int]) -> None:
    gpus.extend([80_000_000_000, 40_000_000_000, 1_000_000_000])
    two = EngineSettings(arena_share=0.5, gpu_memory_utilization=0.5, tensor_parallel_size=2)
    assert arena_bytes(two) == 10_000_000_000


@pytest.mark.parametrize(("given", "times"), [(None, 2), (0, 0)])
def test_the_connector_gets_bytes_and_host_memory_of_twice_the_arena(
    gpus: list[int], tmp_path: Path, given: int | None, times: int
) -> None:
    gpus.append(GPU_BYTES)
    settings = EngineSettings(arena_share=0.5, host_bytes=given)
    model = ModelFiles(tmp_path, "tiny", ModelRevision("tiny@1"))
    arguments = _engine_arguments(settings, model, "inproc://events", Storage.CACHE, {})
    extra = arguments.kv_transfer_config.kv_connector_extra_config
    assert extra["arena_bytes"] == arena_bytes(settings)
    assert extra["host_bytes"] == times * extra["arena_bytes"]
    assert "arena_share" not in extra


def test_a_share_of_nothing_is_refused_with_both_settings(gpus: list[int]) -> None:
    gpus.append(GPU_BYTES)
    nothing = EngineSettings(arena_share=0.8, gpu_memory_utilization=1.0)
    with pytest.raises(WrongSettings) as caught:
        arena_bytes(nothing)
    assert caught.value.problems == (
        "INFERSCALE_ENGINE__ARENA_SHARE is '0.8': INFERSCALE_ENGINE__GPU_MEMORY_UTILIZATION "
        "leaves 0 bytes, and an arena takes 1048576 at least",
    )


def test_a_gpu_that_is_not_there_is_told_in_a_line(gpus: list[int]) -> None:
    gpus.append(GPU_BYTES)
    two = EngineSettings(arena_share=0.8, tensor_parallel_size=2)
    with pytest.raises(WrongSettings, match=r"the memory of 2 GPU\(s\) cannot be read: "):
        arena_bytes(two)


async def test_a_share_on_the_cpu_is_refused_before_a_model_is_looked_for() -> None:
    engine = EngineSettings(model="/no/such/folder", arena_share=0.8)
    with pytest.raises(WrongSettings) as caught:
        async with running_engine(Settings(engine=engine)):
            pass
    assert caught.value.problems == (
        "INFERSCALE_ENGINE__ARENA_SHARE is '0.8': "
        "without a GPU, set INFERSCALE_ENGINE__ARENA_BYTES",
    )
