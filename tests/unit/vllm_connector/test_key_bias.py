"""The bias of keys is the projection's own, checked by projecting zeros, or storage is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.key_bias import find_key_biases

SHAPE = LayerShape(2, 8)
NAME = "model.layers.0.attn"
NUM_HEADS = 4
WIDTH = (NUM_HEADS + 2 * SHAPE.num_kv_heads) * SHAPE.head_dim


class QKVParallelLinear(nn.Linear):
    """As the engine's: this rank's heads, and its answer is a pair."""

    num_heads = NUM_HEADS
    params_dtype = torch.float32

    def __init__(self, *, bias: bool, width: int = WIDTH, ignores_bias: bool = False) -> None:
        super().__init__(16, width, bias=bias)
        self.input_size = 16
        self._ignores_bias = ignores_bias

    def forward(self, inputs: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        bias = None if self._ignores_bias else self.bias
        return nn.functional.linear(inputs, self.weight, bias), None


class Attention(nn.Module):
    layer_name = NAME
    impl = object()


class Qwen2Attention(nn.Module):
    def __init__(self, **children: nn.Module) -> None:
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)
        self.attn = Attention()


def find(**children: nn.Module) -> Tensor | None:
    return find_key_biases(nn.Sequential(Qwen2Attention(**children)), {NAME: SHAPE})[NAME]


@pytest.mark.parametrize("name", ["qkv_proj", "query_key_value"])
def test_the_keys_part_of_the_merged_bias_is_taken(name: str) -> None:
    projection = QKVParallelLinear(bias=True)
    found = find(**{name: projection})
    assert found is not None
    first = NUM_HEADS * SHAPE.head_dim
    expected = projection.bias[first : first + 16].reshape(2, 8)
    assert torch.equal(found, expected)


def test_a_projection_without_a_bias_has_none() -> None:
    assert find(qkv_proj=QKVParallelLinear(bias=False)) is None


def test_the_bias_of_keys_that_are_normalised_afterwards_is_left_alone() -> None:
    assert find(qkv_proj=QKVParallelLinear(bias=True), k_norm=nn.LayerNorm(8)) is None


@pytest.mark.parametrize(
    ("projection", "reason"),
    [
        (nn.Linear(16, WIDTH), "no merged projection"),
        (QKVParallelLinear(bias=True, width=WIDTH + 8), r"shape \[72\], not \[64\]"),
        (QKVParallelLinear(bias=True, ignores_bias=True), "zeros are not projected to its bias"),
    ],
)
def test_what_cannot_be_known_is_refused_by_name(projection: nn.Module, reason: str) -> None:
    with pytest.raises(Unsupported, match=rf"layer {NAME}.*Qwen2Attention.*{reason}"):
        find(qkv_proj=projection)
