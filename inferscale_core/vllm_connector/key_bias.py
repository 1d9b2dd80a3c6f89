"""Finds what to take from a layer's keys before they are quantised: the bias of its projection.

Some models' keys have a bias of hundreds on a few channels, the same for every token; few bits of
mantissa would lose everything else. Where keys are normalised between projection and rotation, a
bias of the projection is no constant of the key any more, and nothing is taken.

Each bias is checked by projecting zeros. Where it cannot be known, quantised storage is refused
unless means were measured (`key_meter`).

Source: vLLM 0.26 and 0.32, model_executor/layers/linear.py (QKVParallelLinear: queries, keys and
values of this rank's heads follow each other) and the attention classes of `rotary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.rotary import attention_parents

PROJECTIONS = ("qkv_proj", "query_key_value")
KEY_NORM = "k_norm"


def find_key_biases(model: nn.Module, shapes: Mapping[str, LayerShape]) -> dict[str, Tensor | None]:
    """Of every named layer, [num_kv_heads, head_dim] of this rank, or None where there is none.

    Raises Unsupported that names the layer and its attention class.
    """
    return {
        layer_name: _key_bias(parent, layer_name, shapes[layer_name])
        for parent, layer_name in attention_parents(model, set(shapes))
    }


def _key_bias(parent: nn.Module, layer_name: str, shape: LayerShape) -> Tensor | None:
    projection = _projection(parent, layer_name)
    if isinstance(getattr(parent, KEY_NORM, None), nn.Module):
        return None
    bias: Tensor | None = getattr(projection, "bias", None)
    num_heads: int = projection.num_heads
    first = num_heads * shape.head_dim
    keys = slice(first, first + shape.num_kv_heads * shape.head_dim)
    width = (num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    if bias is not None and bias.shape != (width,):
        raise _refusal(parent, layer_name, f"its bias has shape {list(bias.shape)}, not [{width}]")
    of_zeros = _project_zeros(projection, width)
    expected = torch.zeros_like(of_zeros) if bias is None else bias.detach().float()
    if not torch.allclose(of_zeros[keys], expected[keys], rtol=1e-2, atol=1e-6):
        raise _refusal(parent, layer_name, "zeros are not projected to its bias")
    if bias is None:
        return None
    return bias.detach()[keys].reshape(shape.num_kv_heads, shape.head_dim).clone()


def _projection(parent: nn.Module, layer_name: str) -> Any:
    for name in PROJECTIONS:
        projection = getattr(parent, name, None)
        if type(projection).__name__ == "QKVParallelLinear":
            return projection
    raise _refusal(parent, layer_name, "it has no merged projection of queries, keys and values")


@torch.no_grad()
def _project_zeros(projection: Any, width: int) -> Tensor:
    device = next(projection.parameters()).device
    zeros = torch.zeros(1, projection.input_size, dtype=projection.params_dtype, device=device)
    projected: Tensor = projection(zeros)[0]
    return projected.reshape(width).float()


def _refusal(parent: nn.Module, layer_name: str, reason: str) -> Unsupported:
    return Unsupported(
        f"layer {layer_name}: quantised storage needs the key bias of {type(parent).__name__}, "
        f"and {reason}"
    )
