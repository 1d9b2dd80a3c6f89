"""What all keys of a layer have in common, measured once: a mean for each KV head and channel.

Keys have no position here. Few bits are better spent on what tokens differ by, so quantised rows
leave the means out (`kv.quantise`), and mean nothing without them: their digest is part of the
model revision that chunks are named by (decision 0013).

Heads are those of the whole model. A rank takes its own:

    4 heads, 2 ranks   | 0 1 | 2 3 |            2 heads, 4 ranks   | 0 | 0 | 1 | 1 |
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DIGEST_DIGITS = 12

Means = NDArray[np.float16]
"""[num_kv_heads, head_dim]. Any vector will do as long as it is always the same, so the rounding to
float16 loses nothing."""


@dataclass(frozen=True, slots=True)
class RankMeans:
    """One layer as one rank measured it. means: [heads of the rank, head_dim], as lists, which
    processes can send each other. num_kv_heads: of the model."""

    means: list[list[float]]
    num_kv_heads: int


@dataclass(frozen=True, slots=True)
class KeyMeans:
    """by_layer: by the engine's name of the layer."""

    by_layer: Mapping[str, Means]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_text().encode()).hexdigest()[:_DIGEST_DIGITS]

    def to_text(self) -> str:
        """The same text for the same means. About 90 kB for a model of 8 billion parameters."""
        body = {name: _packed(means) for name, means in self.by_layer.items()}
        return json.dumps(body, sort_keys=True, separators=(",", ":"))

    def of_rank(self, layer_name: str, rank: int, num_ranks: int) -> Means | None:
        """None for a layer that was not measured."""
        means = self.by_layer.get(layer_name)
        if means is None:
            return None
        own: Means = means[heads_of_rank(len(means), rank, num_ranks)]
        return own


def key_means_from_text(text: str) -> KeyMeans:
    """Raises ValueError or TypeError for what `to_text` did not write."""
    body = json.loads(text)
    if not isinstance(body, dict):
        raise TypeError("key means are an object")
    return KeyMeans({name: _unpacked(packed) for name, packed in body.items()})


def heads_of_rank(num_kv_heads: int, rank: int, num_ranks: int) -> slice:
    """KV heads that a rank holds; of fewer heads than ranks several ranks hold the same one.

    Source: vLLM 0.26 and 0.32, model_executor/layers/linear.py (QKVParallelLinear).
    """
    first = rank * num_kv_heads // num_ranks
    return slice(first, first + max(1, num_kv_heads // num_ranks))


def key_means_of_ranks(ranks: Sequence[Mapping[str, RankMeans]]) -> KeyMeans:
    """Put together what every rank measured, in order of rank."""
    whole: dict[str, Means] = {}
    for rank, by_layer in enumerate(ranks):
        for name, part in by_layer.items():
            shape = (part.num_kv_heads, len(part.means[0]))
            means = whole.setdefault(name, np.zeros(shape, np.float16))
            means[heads_of_rank(part.num_kv_heads, rank, len(ranks))] = _to_float16(part.means)
    return KeyMeans(whole)


def _to_float16(means: list[list[float]]) -> Means:
    limit = float(np.finfo(np.float16).max)
    rounded: Means = np.nan_to_num(np.array(means)).clip(-limit, limit).astype(np.float16)
    return rounded


def _packed(means: Means) -> list[object]:
    raw = means.astype("<f2").tobytes()
    return [*means.shape, base64.b64encode(raw).decode("ascii")]


def _unpacked(packed: list[object]) -> Means:
    num_kv_heads, head_dim, raw = packed
    if not (isinstance(num_kv_heads, int) and isinstance(head_dim, int) and isinstance(raw, str)):
        raise TypeError("means are two sizes and base64")
    numbers = np.frombuffer(base64.b64decode(raw, validate=True), "<f2").astype(np.float16)
    means = numbers.reshape(num_kv_heads, head_dim)
    if not np.isfinite(means).all():
        raise ValueError("a mean is not finite")
    return means
