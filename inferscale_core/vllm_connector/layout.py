"""How the engine's paged cache lays out keys and values; found by writing and reading back.

A shape alone cannot tell (with two KV heads, `[blocks, 2, …]` may be K and V or two heads), so the
engine's own cache-write op puts numbered tokens into two blocks before anything is served, and only
a reader that finds every one of them is accepted. An unknown layout is refused at start-up. In an
fp8 cache the numbers are chosen so that each has a code of its own: what is found is then the
encoding as well.

Source: vLLM 0.26 and 0.32, v1/attention/backends/{cpu_attn,flash_attn}.py (do_kv_cache_update),
csrc/cpu/cpu_attn_amx.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inferscale_core.errors import Unsupported
from inferscale_core.kernels.paged import Strides
from inferscale_core.kv.cache_codes import decode
from inferscale_core.kv.rows import LayerShape

_TILE = 16
"""Columns of a tile of AMX."""

Reader = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(cache, block ids, offsets in block) -> key, value, each [num_tokens, num_kv_heads, head_dim]."""


def read_split_last(cache: Tensor, blocks: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """[blocks, heads, tokens, 2 x dim]: K and V side by side; strides NHD or HND."""
    both = cache[blocks, :, offsets]
    head_dim = both.shape[-1] // 2
    return both[..., :head_dim], both[..., head_dim:]


def read_pair_first(cache: Tensor, blocks: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """[2, blocks, tokens, heads, dim]: all K, then all V."""
    return cache[0, blocks, offsets], cache[1, blocks, offsets]


def read_pair_second(cache: Tensor, blocks: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """[blocks, 2, tokens, heads, dim]: K and V of a block follow each other."""
    return cache[blocks, 0, offsets], cache[blocks, 1, offsets]


def read_cpu(cache: Tensor, blocks: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """CPU: each block's storage per head is K transposed, [dim, tokens], then V, [tokens, dim]."""
    num_blocks, num_heads, block_size, width = cache.shape
    halves = cache.view(num_blocks, num_heads, 2, block_size * width // 2)
    key = halves[:, :, 0].view(num_blocks, num_heads, width // 2, block_size)
    value = halves[:, :, 1].view(num_blocks, num_heads, block_size, width // 2)
    return key[blocks, :, :, offsets], value[blocks, :, offsets]


def read_cpu_tiles(cache: Tensor, blocks: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """CPU with AMX, of a bfloat16 model: as `read_cpu`, but in tiles of 16 columns whose rows hold
    two numbers that are multiplied together. K is [tokens / 16, dim / 2, 16 tokens, 2 dims], V is
    [dim / 16, tokens / 2, 16 dims, 2 tokens]."""
    num_blocks, num_heads, block_size, width = cache.shape
    head_dim = width // 2
    halves = cache.view(num_blocks, num_heads, 2, block_size * head_dim)
    tiles = (num_blocks, num_heads, -1)
    key = halves[:, :, 0].view(*tiles, head_dim // 2, _TILE, 2)
    value = halves[:, :, 1].view(*tiles, block_size // 2, _TILE, 2)
    return (
        key[blocks, :, offsets // _TILE, :, offsets % _TILE].flatten(2),
        value[blocks, :, :, offsets // 2, :, offsets % 2].flatten(2),
    )


CPU_TILES = "cpu_tiles"

READERS: dict[str, Reader] = {
    "split_last": read_split_last,
    "cpu": read_cpu,
    CPU_TILES: read_cpu_tiles,
    "pair_first": read_pair_first,
    "pair_second": read_pair_second,
}


def _strides_split_last(cache: Tensor, head_dim: int) -> Strides:
    block, head, token, dim = cache.stride()
    return Strides(block, head, token, dim, head_dim * dim)


def _strides_pair_first(cache: Tensor, head_dim: int) -> Strides:
    pair, block, token, head, dim = cache.stride()
    return Strides(block, head, token, dim, pair)


def _strides_pair_second(cache: Tensor, head_dim: int) -> Strides:
    block, pair, token, head, dim = cache.stride()
    return Strides(block, head, token, dim, pair)


_STRIDES: dict[str, Callable[[Tensor, int], Strides]] = {
    "split_last": _strides_split_last,
    "pair_first": _strides_pair_first,
    "pair_second": _strides_pair_second,
}


@dataclass(frozen=True, slots=True)
class PagedLayer:
    """One layer of the engine's paged cache, addressed by slots of its KV cache group.

    A slot is `block_id * block_size + offset`, where block ids are the scheduler's. scales: of keys
    and values in an fp8 cache; None where the cache holds the numbers themselves.
    """

    name: str
    attention: Any
    cache: Tensor
    shape: LayerShape
    block_size: int
    group: int
    reader: str
    scales: tuple[float, float] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Of what the model computes and the engine's cache-write op takes."""
        if self.scales is None:
            return self.cache.dtype
        computed: torch.dtype = self.attention.dtype
        return computed

    @property
    def has_strides(self) -> bool:
        """Whether the layout is a strided view, as the fused kernels need."""
        return self.reader in _STRIDES

    @property
    def strides(self) -> Strides:
        """Of a layout that `has_strides`."""
        return _STRIDES[self.reader](self.cache, self.shape.head_dim)

    def read(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of key and value as the cache holds them, each [num_tokens, num_kv_heads,
        head_dim], cache dtype."""
        blocks = slots // self.block_size
        return READERS[self.reader](self.cache, blocks, slots % self.block_size)

    def write(self, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """key, value: [num_tokens, num_kv_heads, head_dim], `dtype`, contiguous."""
        self.attention.impl.do_kv_cache_update(self.attention, key, value, self.cache, slots)


def open_layer(
    name: str, attention: Any, cache: Tensor, shape: LayerShape, block_size: int, group: int = 0
) -> PagedLayer:
    """Find the reader by probing two blocks, and leave them zeroed.

    Call before anything is served. Raises Unsupported that names the layer, backend and shape.
    """
    slots = _probe_slots(block_size, cache.device)
    scales = _fp8_scales(name, attention) if cache.dtype == torch.uint8 else None
    numbers = _numbered(len(slots), shape, cache.device)
    raw = tuple(_coded(n, cache.dtype, s) for n, s in zip(numbers, (False, True), strict=True))
    for reader in READERS:
        layer = PagedLayer(name, attention, cache, shape, block_size, group, reader, scales)
        if _finds(layer, slots, *raw):
            zeros = torch.zeros_like(raw[0], dtype=layer.dtype)
            layer.write(slots, zeros, zeros)
            return layer
    raise Unsupported(
        f"layer {name}: no reader for the cache of {type(attention.impl).__name__}, "
        f"shape {list(cache.shape)}, strides {list(cache.stride())}"
    )


def permit_tiles(layers: Sequence[PagedLayer]) -> None:
    """Ask the operating system for the tiles of AMX, where attention works with them.

    The engine (vLLM 0.32) does not, and ends with an illegal instruction unless something else did.
    Raises Unsupported when they are not given.
    """
    if any(layer.reader == CPU_TILES for layer in layers) and not torch.cpu._init_amx():
        raise Unsupported(
            "attention works with AMX tiles, which the operating system does not permit: "
            "set engine.dtype to float32"
        )


def _probe_slots(block_size: int, device: torch.device) -> Tensor:
    """Every slot of blocks 1 and 2, not in order; block 0 is the engine's null block."""
    count = 2 * block_size
    order = torch.arange(count).roll(block_size // 2 + 1).flip(0)
    return (order + block_size).to(device, torch.int64)


def _numbered(count: int, shape: LayerShape, device: torch.device) -> tuple[Tensor, Tensor]:
    """For keys and for values: integers from 1 to at most 126 that differ between neighbours along
    every axis."""
    token = torch.arange(count).view(-1, 1, 1)
    head = torch.arange(shape.num_kv_heads).view(1, -1, 1)
    dim = torch.arange(shape.head_dim).view(1, 1, -1)
    key = (token * 7 + head * 31 + dim * 3) % 126 + 1
    value = (token * 5 + head * 29 + dim * 11) % 113 + 1
    return key.to(device), value.to(device)


def _coded(numbers: Tensor, dtype: torch.dtype, is_negative: bool) -> Tensor:
    """As the cache holds them: the codes of fp8 with these bits, or the integers, which are exact
    in every float dtype."""
    if dtype == torch.uint8:
        return (numbers + 128 * is_negative).to(torch.uint8)
    return (-numbers if is_negative else numbers).to(dtype)


def _finds(layer: PagedLayer, slots: Tensor, key: Tensor, value: Tensor) -> bool:
    """key, value: as the cache must hold them."""
    key_scale, value_scale = layer.scales or (None, None)
    written = decode(key, key_scale), decode(value, value_scale)
    layer.write(slots, *(numbers.to(layer.dtype) for numbers in written))
    try:
        read_key, read_value = layer.read(slots)
    except (IndexError, RuntimeError, ValueError):
        return False
    return (
        read_key.shape == key.shape
        and torch.equal(read_key, key)
        and torch.equal(read_value, value)
    )


def _fp8_scales(name: str, attention: Any) -> tuple[float, float]:
    """Of keys and values. Raises Unsupported for scales that are not one fixed number each."""
    scales = attention._k_scale, attention._v_scale
    if getattr(attention, "calculate_kv_scales", False):
        raise Unsupported(f"layer {name}: fp8 scales that are computed while serving")
    if any(scale.numel() != 1 for scale in scales):
        raise Unsupported(f"layer {name}: fp8 scales by head")
    key_scale, value_scale = (float(scale) for scale in scales)
    if not (0 < key_scale < float("inf") and 0 < value_scale < float("inf")):
        raise Unsupported(f"layer {name}: fp8 scales {key_scale} and {value_scale}")
    return key_scale, value_scale
