"""Capture and compose: a token's row holds what the engine had, and comes back where it should."""

from __future__ import annotations

import pytest
import torch

from inferscale_core.kernels.capture.reference import capture_rows
from inferscale_core.kernels.compose.reference import compose_layer
from inferscale_core.kv.rope import RotaryTable, apply, rotation, shift
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena

SHAPES = (LayerShape(2, 32), LayerShape(4, 32), LayerShape(1, 64))


def table(head_dim: int, *, is_neox: bool = True) -> RotaryTable:
    angles = torch.arange(64.0)[:, None] * (10_000 ** (-torch.arange(head_dim // 2) * 2 / head_dim))
    return RotaryTable(angles.cos(), angles.sin(), head_dim, is_neox)


@pytest.mark.parametrize("num_tokens", [1, 7])
@pytest.mark.parametrize("is_neox", [True, False])
def test_layers_of_different_shape_share_a_row(num_tokens: int, is_neox: bool) -> None:
    arena = Arena(20, row_layout(SHAPES, torch.float32), torch.device("cpu"))
    slots = torch.randperm(20)[:num_tokens]
    origins, places = torch.arange(num_tokens) + 9, torch.arange(num_tokens) + 30
    keys = [torch.randn(num_tokens, s.num_kv_heads, s.head_dim) for s in SHAPES]
    values = [torch.randn_like(key) for key in keys]
    tables = [table(s.head_dim, is_neox=is_neox) for s in SHAPES]
    pairs = [
        (apply(rotation(rotary, origins), key), value)
        for key, value, rotary in zip(keys, values, tables, strict=True)
    ]
    arena.scatter(slots, capture_rows(pairs))
    for index, rotary in enumerate(tables):
        key, value = arena.read_layer(slots, index)
        moved, same = compose_layer(key, value, shift(rotary, origins, places))
        torch.testing.assert_close(moved, apply(rotation(rotary, places), keys[index]))
        assert torch.equal(same, values[index])
        assert moved.is_contiguous()
        assert same.is_contiguous()
    untouched = torch.ones(20, dtype=torch.bool)
    untouched[slots] = False
    assert not arena.rows[untouched].any()
    arena.zero(slots)
    assert not arena.rows.any()


def test_a_row_has_the_bytes_that_facts_per_gb_is_computed_from() -> None:
    arena = Arena(8, row_layout(SHAPES, torch.bfloat16), torch.device("cpu"))
    assert arena.row_bytes == 2 * 2 * (2 * 32 + 4 * 32 + 64)
    assert arena.num_bytes == 8 * arena.row_bytes
