"""An fp8 cache is found by its codes: layout and encoding at once, or it is refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from inferscale_core.errors import Unsupported
from inferscale_core.kv.cache_codes import decode, encode
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.layout import open_layer

BLOCKS, BLOCK, DIM, HEADS = 4, 8, 16, 2
SCALES = (0.37, 2.5)


class Engine:
    """Writes as vLLM does: numbers of the model's dtype, divided by the scale, as codes."""

    def __init__(self, kind: torch.dtype) -> None:
        self._kind = kind

    def do_kv_cache_update(
        self, layer: Any, key: Tensor, value: Tensor, cache: Tensor, slots: Tensor
    ) -> None:
        assert key.dtype == value.dtype == torch.bfloat16
        coded = [
            (numbers.float() / scale).clamp(-448, 448).to(self._kind).view(torch.uint8)
            for numbers, scale in ((key, layer._k_scale), (value, layer._v_scale))
        ]
        cache[slots // BLOCK, :, slots % BLOCK] = torch.cat(coded, dim=-1)


def attention(kind: torch.dtype = torch.float8_e4m3fn, **changes: Any) -> SimpleNamespace:
    fields = {
        "impl": Engine(kind),
        "dtype": torch.bfloat16,
        "_k_scale": torch.tensor(SCALES[0]),
        "_v_scale": torch.tensor(SCALES[1]),
    }
    return SimpleNamespace(**fields | changes)


def cache() -> Tensor:
    return torch.zeros(BLOCKS, HEADS, BLOCK, 2 * DIM, dtype=torch.uint8)


def test_codes_and_scales_are_found_and_the_probe_leaves_nothing() -> None:
    held = cache()
    layer = open_layer("layer", attention(), held, LayerShape(HEADS, DIM), BLOCK)
    assert layer.reader == "split_last"
    assert layer.dtype == torch.bfloat16
    assert layer.scales == pytest.approx(SCALES)
    assert not held.any()
    slots = torch.tensor([9, 31, 8, 22])
    key, value = (torch.randn(4, HEADS, DIM).to(torch.bfloat16) for _ in range(2))
    layer.write(slots, key, value)
    for raw, written, scale in zip(layer.read(slots), (key, value), SCALES, strict=True):
        seen = decode(raw.contiguous(), scale)
        assert ((seen - written.float()).abs() <= written.float().abs() / 14 + scale / 512).all()


def test_another_encoding_of_bytes_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"layer model\.layers\.0: no reader"):
        open_layer(
            "model.layers.0",
            attention(torch.float8_e5m2),
            cache(),
            LayerShape(HEADS, DIM),
            BLOCK,
        )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"_k_scale": torch.ones(HEADS)}, "fp8 scales by head"),
        ({"calculate_kv_scales": True}, "computed while serving"),
        ({"_v_scale": torch.tensor(0.0)}, r"fp8 scales 0\.3\d+ and 0\.0"),
    ],
)
def test_scales_that_are_not_one_fixed_number_are_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unsupported, match=f"layer first: .*{reason}"):
        open_layer("first", attention(**changes), cache(), LayerShape(HEADS, DIM), BLOCK)


def test_every_code_but_nan_comes_back_through_its_number() -> None:
    codes = torch.arange(256).to(torch.uint8)
    codes = codes[(codes & 0x7F) != 0x7F]
    assert torch.equal(encode(decode(codes, 0.37), 0.37, torch.uint8), codes)
