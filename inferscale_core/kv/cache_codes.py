"""What numbers the elements of the engine's cache stand for.

A cache of a float dtype holds the numbers themselves. An fp8 cache holds e4m3 codes as bytes, which
stand for code times a scale of the layer, one for keys and one for values.

Source: vLLM 0.26 and 0.32, model_executor/layers/attention (`_k_scale`, `_v_scale`, which its
cache-write op divides by).
"""

from __future__ import annotations

import torch
from torch import Tensor

FP8_MAX = 448.0


def decode(raw: Tensor, scale: float | None) -> Tensor:
    """float32. raw: as the cache holds it; scale: of an fp8 cache, None for a float one."""
    if scale is None:
        return raw.float()
    return raw.view(torch.float8_e4m3fn).float() * scale


def encode(values: Tensor, scale: float | None, dtype: torch.dtype) -> Tensor:
    """values, float32, rounded once to what a cache of `dtype` holds."""
    if scale is None:
        return values.to(dtype)
    return (values / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).view(torch.uint8)
