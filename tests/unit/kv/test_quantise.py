"""Few bits for a head: how far what comes back is from what went in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from inferscale_core.kernels.capture.reference import capture_quantised
from inferscale_core.kernels.compose.reference import compose_quantised
from inferscale_core.kv.quantise import dequantise, pack_part, quantise, unpack_part
from inferscale_core.kv.rope import RotaryTable, apply, rotation, unrotation
from inferscale_core.kv.rows import LayerShape, part_layout, row_layout
from inferscale_core.memory.recipes import Storage

QUANTISED = [storage for storage in Storage if storage is not Storage.CACHE]
SHAPES = [LayerShape(1, 64), LayerShape(2, 32), LayerShape(3, 80), LayerShape(8, 128)]


def half_step(storage: Storage, values: Tensor) -> Tensor:
    """Half the distance of neighbouring codes at each value."""
    largest = values.abs().amax(-1, keepdim=True)
    if storage is Storage.INT8:
        return (largest / 127 / 2).expand_as(values)
    if storage is Storage.FP8:
        return torch.maximum(values.abs() / 16, largest / 448 * 2**-10)
    groups = torch.split(values, 64, dim=-1)
    spans = [(g.amax(-1, keepdim=True) - g.amin(-1, keepdim=True)).expand_as(g) for g in groups]
    return torch.cat(spans, dim=-1) / 15 / 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("storage", QUANTISED)
def test_what_comes_back_is_within_half_a_step(storage: Storage, shape: LayerShape) -> None:
    torch.manual_seed(0)
    size = (7, shape.num_kv_heads, shape.head_dim)
    key, value = torch.randn(size) * 5, torch.randn(size) * 0.1
    part = pack_part(storage, key, value)
    assert part.shape == (7, part_layout(storage, shape).num_bytes)
    for wanted, seen in zip((key, value), unpack_part(storage, shape, part), strict=True):
        # A scale is rounded to float16, which may move the outermost codes a little further.
        limit = half_step(storage, wanted) + wanted.abs().amax(-1, keepdim=True) * 2**-10
        assert ((seen - wanted).abs() <= limit).all()


@pytest.mark.parametrize("storage", QUANTISED)
def test_a_token_depends_on_no_other(storage: Storage) -> None:
    torch.manual_seed(1)
    key, value = torch.randn(5, 2, 32), torch.randn(5, 2, 32)
    together = pack_part(storage, key, value)
    for token in range(5):
        alone = pack_part(storage, key[token, None], value[token, None])
        assert torch.equal(alone[0], together[token])


@pytest.mark.parametrize("storage", QUANTISED)
@pytest.mark.parametrize("constant", [0.0, 1.0, -3.0])
def test_a_head_of_one_value_comes_back(storage: Storage, constant: float) -> None:
    values = torch.full((3, 2, 32), constant)
    restored = dequantise(storage, *quantise(storage, values), 32)
    torch.testing.assert_close(restored, values, rtol=2**-10, atol=0)


@pytest.mark.parametrize("storage", QUANTISED)
def test_magnitudes_beyond_a_scale_are_clipped_and_never_become_infinite(storage: Storage) -> None:
    values = torch.tensor([3e38, -3e38, 1.0, 0.0]).repeat(1, 1, 16)
    assert dequantise(storage, *quantise(storage, values), 64).isfinite().all()


@pytest.mark.parametrize("storage", QUANTISED)
@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("magnitude", [1.0, 1.3])
def test_a_key_captured_at_one_position_serves_at_another(
    storage: Storage, is_neox: bool, magnitude: float
) -> None:
    """Scaled tables too: R(0) of yarn is not the identity, and must be undone and put back."""
    torch.manual_seed(2)
    shape = LayerShape(2, 32)
    angles = torch.arange(64.0)[:, None] * 10_000 ** -(torch.arange(8) * 2 / 16)
    table = RotaryTable(angles.cos() * magnitude, angles.sin() * magnitude, 16, is_neox)
    plain, value = torch.randn(6, 2, 32), torch.randn(6, 2, 32)
    bias = torch.randn(2, 32) * 5
    origins, places = torch.arange(6), torch.arange(6) + 50
    cached = apply(rotation(table, origins), plain + bias)
    part = capture_quantised(storage, cached, value, unrotation(table, origins), bias)
    key, same = compose_quantised(
        storage, shape, part, rotation(table, places), bias, torch.float32
    )
    wanted = apply(rotation(table, places), plain + bias)
    step = half_step(storage, plain).amax(-1, keepdim=True)
    assert ((key - wanted).abs() <= 2 * magnitude * step + 1e-3).all()
    assert ((same - value).abs() <= 1.1 * half_step(storage, value) + 1e-3).all()


@pytest.mark.parametrize("storage", QUANTISED)
def test_a_large_bias_would_drown_what_tokens_differ_by(storage: Storage) -> None:
    """The bias of up to 354 that Qwen2.5 puts on a few channels of every key."""
    torch.manual_seed(3)
    shape = LayerShape(2, 128)
    plain, value = torch.randn(16, 2, 128), torch.randn(16, 2, 128)
    bias = torch.zeros(2, 128)
    bias[:, 60:64], bias[:, 124:128] = 354.0, -210.0
    angles = torch.arange(64.0)[:, None] * 1e6 ** -(torch.arange(64) * 2 / 128)
    table = RotaryTable(angles.cos(), angles.sin(), 128, True)
    places = torch.arange(16)
    cached = apply(rotation(table, places), plain + bias)

    def mean_error(taken: Tensor | None) -> float:
        part = capture_quantised(storage, cached, value, unrotation(table, places), taken)
        key, _ = compose_quantised(
            storage, shape, part, rotation(table, places), taken, torch.float32
        )
        return float((key - cached).square().mean().sqrt())

    assert mean_error(bias) < 0.2, "a fraction of what keys differ by, which is 1"
    assert mean_error(None) > 10 * mean_error(bias)


@pytest.mark.parametrize("storage", QUANTISED)
def test_a_bias_is_left_in_keys_that_are_unlike_the_others(storage: Storage) -> None:
    """As of a prompt's first token: it would have to be kept as what is missing there."""
    torch.manual_seed(4)
    shape = LayerShape(2, 128)
    bias = torch.randn(2, 128) * 10
    key, value = torch.randn(8, 2, 128) + bias, torch.randn(8, 2, 128)
    key[0] -= bias

    def worst(bias: Tensor | None) -> Tensor:
        part = pack_part(storage, key, value, bias)
        seen, _ = unpack_part(storage, shape, part, bias)
        return (seen - key).abs().amax((1, 2))

    chosen, plain = worst(bias), worst(None)
    assert chosen[0] == plain[0], "kept as if there were no bias"
    assert (chosen[1:] < plain[1:] / 3).all()


@pytest.mark.parametrize("storage", QUANTISED)
def test_the_choice_is_made_for_each_scale(storage: Storage) -> None:
    """Here 64 elements of a head have the bias, and 64 do not."""
    shape, bias = LayerShape(1, 128), torch.full((1, 128), 100.0)
    bias[:, ::2] *= -1
    key = torch.linspace(-1, 1, 128).expand(1, 1, 128).clone()
    key[..., :64] += bias[:, :64]
    seen, _ = unpack_part(storage, shape, pack_part(storage, key, key, bias), bias)
    error = float((seen - key).abs().max())
    if storage is Storage.INT4:
        assert error < 0.1
    else:
        assert 0.1 < error < 10


@pytest.mark.parametrize("storage", QUANTISED)
def test_no_choice_is_lost_in_a_scale_too_small_for_float16(storage: Storage) -> None:
    shape, bias = LayerShape(1, 64), torch.full((1, 64), 3.0)
    for constant in (0.0, 1e-9, 3.0):
        key = torch.full((2, 1, 64), constant)
        seen, _ = unpack_part(storage, shape, pack_part(storage, key, key, bias), bias)
        torch.testing.assert_close(seen, key, rtol=2**-10, atol=1e-5)


def test_bytes_of_a_row_of_a_model_with_eight_heads_of_128() -> None:
    layers = [LayerShape(8, 128)] * 32
    sizes = {s: row_layout(layers, torch.bfloat16, s).row_bytes for s in Storage}
    assert sizes == {
        Storage.CACHE: 131072,
        Storage.FP8: 66560,
        Storage.INT8: 66560,
        Storage.INT4: 36864,
    }


@pytest.mark.parametrize("storage", [Storage.CACHE, "a storage of tomorrow"])
def test_no_other_storage_is_taken_for_one_of_these(storage: Any) -> None:
    values = torch.ones(1, 2, 8)
    with pytest.raises(AssertionError):
        part_layout(storage, LayerShape(2, 8))
    with pytest.raises(AssertionError):
        quantise(storage, values)
    with pytest.raises(AssertionError):
        dequantise(storage, torch.zeros(1, 2, 8, dtype=torch.uint8), torch.ones(1, 2, 1), 8)
