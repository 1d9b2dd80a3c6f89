"""How large the arena of each rank is: in bytes, or as a share of what vLLM leaves."""

from __future__ import annotations

import math

from inferscale_core.settings import (
    MIN_ARENA_BYTES,
    EngineSettings,
    WrongSettings,
    set_engine_environment,
    variable,
)


def arena_bytes(settings: EngineSettings) -> int:
    """Loads vLLM for a share, and uses no GPU for it.

    A share is of the smallest GPU's memory, as ranks have arenas of one size; the connector rounds
    down to whole pages. The driver's total may be a hundredth above what vLLM counts with, and in a
    MIG slice it is the whole card's. Raises WrongSettings where a share cannot be had.

    Source: vLLM 0.26 and 0.32, v1/worker/utils.py (request_memory: what vLLM takes is rounded up)
    and platforms/cuda.py (NvmlCudaPlatform: the driver is asked, so CUDA stays uninitialised).
    """
    if settings.arena_share is None:
        return settings.arena_bytes
    set_engine_environment()
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        raise _wrong(settings, f"without a GPU, set {variable('engine', 'arena_bytes')}")
    try:
        devices = range(settings.tensor_parallel_size)
        total = min(current_platform.get_device_total_memory(device) for device in devices)
    except Exception as exc:
        reason = f"the memory of {len(devices)} GPU(s) cannot be read: {exc or type(exc).__name__}"
        raise _wrong(settings, reason) from exc
    left = total - math.ceil(total * settings.gpu_memory_utilization)
    found = int(left * settings.arena_share)
    if found < MIN_ARENA_BYTES:
        taken = f"{variable('engine', 'gpu_memory_utilization')} leaves {left} bytes"
        raise _wrong(settings, f"{taken}, and an arena takes {MIN_ARENA_BYTES} at least")
    return found


def _wrong(settings: EngineSettings, reason: str) -> WrongSettings:
    name = variable("engine", "arena_share")
    return WrongSettings(f"{name} is '{settings.arena_share}': {reason}")
