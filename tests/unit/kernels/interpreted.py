"""Run as a script: the fused kernels against their references, in Triton's interpreter or on a GPU.
In the interpreter all that they read or write lies before memory that nobody may touch.

A process of its own, since TRITON_INTERPRET must be set before the kernels are imported.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inferscale_core.kernels.capture.launch import capture
from inferscale_core.kernels.capture.reference import capture_quantised, capture_rows
from inferscale_core.kernels.compose.launch import compose
from inferscale_core.kernels.compose.reference import compose_layer, compose_quantised
from inferscale_core.kernels.paged import KernelLayer, PagedGroup, Strides, as_list, group_layers
from inferscale_core.kv.cache_codes import decode, encode
from inferscale_core.kv.quantise import unpack_part
from inferscale_core.kv.rope import RotaryTable, apply, rotation, shift, unrotation
from inferscale_core.kv.rows import LayerShape, row_layout
from inferscale_core.kv.storage import Arena
from inferscale_core.memory.recipes import Storage
from tests.unit.kernels.guarded import guarded

BLOCKS, BLOCK, ROWS, POSITIONS = 5, 16, 64, 128
FP8_NAN = 0x7F
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2**-9, torch.bfloat16: 2**-7, torch.uint8: 2**-3}
"""Of one rounding to the cache; the interpreter truncates to bfloat16."""
Layout = Callable[[int, int, torch.dtype, str], tuple[Tensor, Strides]]


def nhd(heads: int, dim: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Strides]:
    cache = guarded(torch.empty(BLOCKS, BLOCK, heads, 2 * dim, dtype=dtype, device=device))
    view = cache.permute(0, 2, 1, 3)
    return view, Strides(*view.stride(), dim)


def hnd(heads: int, dim: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Strides]:
    view = guarded(torch.empty(BLOCKS, heads, BLOCK, 2 * dim, dtype=dtype, device=device))
    return view, Strides(*view.stride(), dim)


def pair_first(heads: int, dim: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Strides]:
    cache = guarded(torch.empty(2, BLOCKS, BLOCK, heads, dim, dtype=dtype, device=device))
    pair, block, token, head, last = cache.stride()
    return cache, Strides(block, head, token, last, pair)


def places(cache: Tensor, slots: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Copies of key and value at the slots, as the cache holds them."""
    blocks, offsets = slots // BLOCK, slots % BLOCK
    if cache.dim() == 5:
        return cache[0, blocks, offsets], cache[1, blocks, offsets]
    both = cache[blocks, :, offsets]
    return both[..., :dim], both[..., dim:]


def put(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    blocks, offsets = slots // BLOCK, slots % BLOCK
    if cache.dim() == 5:
        cache[0, blocks, offsets], cache[1, blocks, offsets] = key, value
    else:
        cache[blocks, :, offsets] = torch.cat([key, value], dim=-1)


def table(rotary_dim: int, is_neox: bool, device: str, magnitude: float) -> RotaryTable:
    powers = torch.arange(rotary_dim // 2) * 2 / rotary_dim
    angles = torch.arange(float(POSITIONS))[:, None] * 10_000**-powers
    return RotaryTable(
        guarded((angles.cos() * magnitude).to(device)),
        guarded((angles.sin() * magnitude).to(device)),
        rotary_dim,
        is_neox,
    )


@dataclass(frozen=True)
class Case:
    """dtype: of the engine's cache; uint8 means fp8."""

    layout: Layout
    shape: LayerShape
    is_neox: bool
    storage: Storage
    rotary_dim: int
    dtype: torch.dtype
    num_tokens: int
    num_layers: int
    device: str


class Bench:
    """Caches full of NaN, an arena, and places for a few tokens in both."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(case.num_tokens)
        self.case, shape, device = case, case.shape, case.device
        tables = [table(case.rotary_dim, case.is_neox, device, 1.2)] * case.num_layers
        if case.num_layers > 2:
            tables = [*tables[:-1], table(case.rotary_dim, case.is_neox, device, 1.0)]
        self.layers: list[KernelLayer] = []
        for index, rotary in enumerate(tables):
            cache, strides = case.layout(shape.num_kv_heads, shape.head_dim, case.dtype, device)
            bias = torch.randn(shape.num_kv_heads, shape.head_dim, device=device)
            bias[:, 1 :: shape.head_dim // 4] *= 100
            scales = (0.37, 0.011) if case.dtype == torch.uint8 else None
            has_bias = index != 1 and case.num_tokens != 3
            self.layers.append(
                KernelLayer(
                    index, cache, strides, rotary, guarded(bias) if has_bias else None, scales
                )
            )
        layout = row_layout([shape] * case.num_layers, case.dtype, case.storage)
        self.arena = Arena(ROWS, layout, torch.device(device))
        self.arena.rows = guarded(self.arena.rows)
        self.groups: list[PagedGroup] = group_layers(self.layers, layout, BLOCK)
        assert len(self.groups) == 1
        count = case.num_tokens
        self.arena_slots = torch.randperm(ROWS)[:count].to(device)
        self.cache_slots = torch.randperm(BLOCKS * BLOCK)[:count].to(device)
        self.origins = torch.randint(0, POSITIONS, (count,)).to(device)
        self.positions = torch.randint(0, POSITIONS, (count,)).to(device)
        self.positions[0] = self.origins[0]

    def copies(self, positions: Tensor) -> Tensor:
        """With padding before and after, which names a row and a position that exist."""
        lines = torch.stack([self.arena_slots, self.origins, positions, self.cache_slots])
        padding = torch.tensor([[0], [0], [0], [-1]], device=self.case.device)
        return guarded(as_list(torch.cat([padding, lines, padding], dim=1)))

    def clear(self) -> None:
        for layer in self.layers:
            layer.cache.fill_(FP8_NAN if self.case.dtype == torch.uint8 else float("nan"))

    def fill(self) -> None:
        """Keys as an engine has them at the tokens' origins, bias and rotation included. Of several
        tokens the last has keys unlike the others', without the bias."""
        shape = self.case.shape
        for layer in self.layers:
            key, value = (
                torch.randn(self.case.num_tokens, shape.num_kv_heads, shape.head_dim).to(
                    self.case.device
                )
                for _ in range(2)
            )
            biased = key if layer.bias is None else key + layer.bias
            if self.case.num_tokens > 1:
                biased[-1] = key[-1]
            self._put(layer, biased, value)

    def _put(self, layer: KernelLayer, key: Tensor, value: Tensor) -> None:
        rotated = apply(rotation(layer.table, self.origins), key)
        scales = layer.cache_scales or (None, None)
        coded = (
            encode(x, s, self.case.dtype) for x, s in zip((rotated, value), scales, strict=True)
        )
        put(layer.cache, self.cache_slots, *coded)

    def seen(self, layer: KernelLayer) -> tuple[Tensor, Tensor]:
        return places(layer.cache, self.cache_slots, self.case.shape.head_dim)

    def numbers(self, layer: KernelLayer) -> tuple[Tensor, Tensor]:
        key, value = self.seen(layer)
        scales = layer.cache_scales or (None, None)
        return decode(key.contiguous(), scales[0]), decode(value.contiguous(), scales[1])

    def assert_untouched(self) -> None:
        every = torch.ones(BLOCKS * BLOCK, dtype=torch.bool, device=self.case.device)
        every[self.cache_slots] = False
        rest = torch.arange(BLOCKS * BLOCK, device=self.case.device)[every]
        for layer in self.layers:
            for part in places(layer.cache, rest, self.case.shape.head_dim):
                is_left = part == FP8_NAN if part.dtype == torch.uint8 else part.isnan()
                assert is_left.all(), "an untouched slot was written"


def check(case: Case) -> None:
    bench = Bench(case)
    bench.clear()
    bench.fill()
    check_capture(bench)
    bench.clear()
    check_compose(bench)


def check_capture(bench: Bench) -> None:
    case, arena = bench.case, bench.arena
    arena.rows.fill_(5)
    before = arena.rows.clone()
    capture(arena.rows, bench.groups, bench.copies(bench.origins))
    written = torch.zeros(ROWS, dtype=torch.bool, device=case.device)
    written[bench.arena_slots] = True
    assert torch.equal(arena.rows[~written], before[~written]), "another row was written"
    if case.storage is Storage.CACHE:
        wanted = capture_rows([bench.seen(layer) for layer in bench.layers])
        assert torch.equal(arena.gather(bench.arena_slots), wanted)
        return
    for layer in bench.layers:
        back = unrotation(layer.table, bench.origins)
        key, value = bench.numbers(layer)
        wanted = capture_quantised(case.storage, key, value, back, layer.bias)
        actual = arena.read_part(bench.arena_slots, layer.index)
        pairs = zip(
            unpack_part(case.storage, case.shape, actual, layer.bias),
            unpack_part(case.storage, case.shape, wanted, layer.bias),
            strict=True,
        )
        for seen, expected in pairs:
            assert_within_a_step(case.storage, seen, expected)


def assert_within_a_step(storage: Storage, seen: Tensor, expected: Tensor) -> None:
    """All but a few are the same; those differ by one step, where a float sum fell otherwise."""
    largest = expected.abs().amax(-1, keepdim=True)
    step = {Storage.INT8: largest / 127, Storage.INT4: 2 * largest / 15}.get(
        storage, expected.abs() / 8 + largest / 448 / 512
    )
    difference = (seen - expected).abs()
    assert (difference <= 1.01 * step).all(), "further off than one step"
    assert float((difference > step / 20).float().mean()) < 0.02, "too many differ"


def check_compose(bench: Bench) -> None:
    case, arena = bench.case, bench.arena
    compose(arena.rows, bench.groups, bench.copies(bench.positions))
    bench.assert_untouched()
    tolerance = TOLERANCE[case.dtype]
    for layer in bench.layers:
        key, value = bench.numbers(layer)
        scales = layer.cache_scales or (None, None)
        if case.storage is Storage.CACHE:
            stored = arena.read_layer(bench.arena_slots, layer.index)
            turn = shift(layer.table, bench.origins, bench.positions)
            wanted, _ = compose_layer(decode(stored[0].contiguous(), scales[0]), stored[1], turn)
            raw_key, raw_value = bench.seen(layer)
            assert torch.equal(raw_key[0], stored[0][0]), "a token that stays is copied bitwise"
            assert torch.equal(raw_value, stored[1])
        else:
            part = arena.read_part(bench.arena_slots, layer.index)
            turn = rotation(layer.table, bench.positions)
            wanted, same = compose_quantised(
                case.storage, case.shape, part, turn, layer.bias, torch.float32
            )
            limit = tolerance * same.abs() + (layer.cache_scales or (1e-6, 1e-6))[1] * 2**-9
            assert ((value - same).abs() <= limit).all()
        if scales[0] is not None:
            wanted = wanted.clamp(-448 * scales[0], 448 * scales[0])
        error = (key - wanted).abs()
        largest = wanted.abs().amax(-1, keepdim=True)
        assert (error <= tolerance * wanted.abs() + 1e-5 * largest + (scales[0] or 0) / 512).all()


def cases(device: str) -> Iterator[Case]:
    shapes = (LayerShape(1, 64), LayerShape(2, 32), LayerShape(3, 80), LayerShape(4, 128))
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.uint8)
    layouts = (nhd, hnd, pair_first)
    sizes = ((1, 1), (3, 3), (9, 5))
    for count, (storage, layout, shape) in enumerate(itertools.product(Storage, layouts, shapes)):
        mixed = count + count // 4
        rotary_dim = shape.head_dim // (1, 2, 4)[mixed % 3]
        is_neox = (count // 2 + count // 4) % 2 == 0
        num_tokens, num_layers = sizes[count // 2 % 3]
        yield Case(
            layout=layout,
            shape=shape,
            is_neox=is_neox,
            storage=storage,
            rotary_dim=rotary_dim,
            dtype=dtypes[mixed % 4],
            num_tokens=num_tokens,
            num_layers=num_layers,
            device=device,
        )


def main() -> None:
    count = 0
    for case in cases(sys.argv[1]):
        try:
            check(case)
        except AssertionError:
            print(case, file=sys.stderr)
            raise
        count += 1
    print(f"{count} cases agree")


if __name__ == "__main__":
    main()
