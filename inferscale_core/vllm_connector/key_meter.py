"""Measures what the keys of every layer have in common, over what a rank captures meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from inferscale_core.errors import Unsupported
from inferscale_core.kernels.paged import FIRST_CACHE_LINE, PAD_SLOT
from inferscale_core.kv.cache_codes import decode
from inferscale_core.kv.key_means import KeyMeans, RankMeans
from inferscale_core.kv.rope import RotaryTable, apply, unrotation
from inferscale_core.kv.rows import LayerShape
from inferscale_core.vllm_connector.copies import Copy
from inferscale_core.vllm_connector.layout import PagedLayer
from inferscale_core.vllm_connector.rotary import attention_parents
from inferscale_core.vllm_connector.staging import plain_lines


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the ranks among which KV heads are dealt out."""

    rank: int
    num_ranks: int


ONE_RANK = Shard(0, 1)


class KeyMeter:
    """Adds up un-rotated keys of all layers. Called by the rank's own thread.

    What begins a prompt is left out: its first tokens attract attention from everywhere and have
    keys unlike all others'.
    """

    def __init__(self, layers: Sequence[PagedLayer], tables: Sequence[RotaryTable]) -> None:
        self._layers = layers
        self._tables = tables
        self._num_keys = [0] * len(layers)
        self._sums = [_zeros(layer) for layer in layers]
        self._squares = [_zeros(layer) for layer in layers]

    def add(self, copies: Sequence[Copy]) -> None:
        """copies: captures whose tokens are in the engine's caches."""
        counted = [copy for copy in copies if copy.position > 0]
        if not counted:
            return
        lines = plain_lines(counted).to(self._layers[0].cache.device)
        for index, layer in enumerate(self._layers):
            slots = lines[FIRST_CACHE_LINE + layer.group]
            is_held = slots != PAD_SLOT
            key, _ = layer.read(slots[is_held].contiguous())
            scale = layer.scales and layer.scales[0]
            back = unrotation(self._tables[index], lines[2][is_held])
            plain = apply(back, decode(key.contiguous(), scale)).double()
            self._num_keys[index] += len(plain)
            self._sums[index] += plain.sum(0)
            self._squares[index] += plain.square().sum(0)

    @property
    def num_keys(self) -> int:
        """Of the layer that saw fewest."""
        return min(self._num_keys)

    def means(self) -> list[Tensor]:
        """Of each layer, [num_kv_heads, head_dim], float64. Some key must have been seen."""
        return [total / n for total, n in zip(self._sums, self._num_keys, strict=True)]

    def shares(self) -> list[float]:
        """Of each layer the part of its keys' square that is their means'."""
        squares = [
            float(total.sum()) / n for total, n in zip(self._squares, self._num_keys, strict=True)
        ]
        means = [float(mean.square().sum()) for mean in self.means()]
        return [mean / max(square, 1e-12) for mean, square in zip(means, squares, strict=True)]


def rank_means(
    meter: KeyMeter, model: nn.Module, shapes: Mapping[str, LayerShape], shard: Shard
) -> dict[str, RankMeans]:
    """What this rank's meter says, with the KV heads that the whole model has. shapes: of the
    meter's layers, in order. Empty when no key was measured.

    Raises Unsupported where it cannot be told which heads a rank holds.
    """
    if not meter.num_keys:
        return {}
    parents = {name: parent for parent, name in attention_parents(model, set(shapes))}
    return {
        name: RankMeans(mean.tolist(), _num_heads(parents[name], name, shape, shard))
        for (name, shape), mean in zip(shapes.items(), meter.means(), strict=True)
    }


def means_of_rank(
    means: KeyMeans, shapes: Mapping[str, LayerShape], shard: Shard, device: torch.device
) -> list[Tensor]:
    """Of every named layer, [num_kv_heads, head_dim] of this rank, in float32.

    Raises Unsupported for means of a model with other layers.
    """
    found = []
    for name, shape in shapes.items():
        own = means.of_rank(name, shard.rank, shard.num_ranks)
        if own is None or own.shape != (shape.num_kv_heads, shape.head_dim):
            has = "none" if own is None else f"means of {own.shape[0]} heads of {own.shape[1]}"
            raise Unsupported(
                f"layer {name}: it has {shape.num_kv_heads} heads of {shape.head_dim}, "
                f"and of its keys there are {has}"
            )
        found.append(torch.from_numpy(own).float().to(device))
    return found


def _num_heads(parent: nn.Module, name: str, shape: LayerShape, shard: Shard) -> int:
    """KV heads of the whole model. Source: vLLM 0.26 and 0.32, the attention classes of `rotary`
    that may hold a head on several ranks have it as `total_num_kv_heads`."""
    if shard.num_ranks == 1:
        return shape.num_kv_heads
    total = getattr(parent, "total_num_kv_heads", None)
    if not isinstance(total, int):
        raise Unsupported(f"layer {name}: {type(parent).__name__} names no total_num_kv_heads")
    return total


def _zeros(layer: PagedLayer) -> Tensor:
    size = (layer.shape.num_kv_heads, layer.shape.head_dim)
    return torch.zeros(size, dtype=torch.float64, device=layer.cache.device)
