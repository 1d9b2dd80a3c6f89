"""What keys have in common: written down, read back, named, and dealt out to ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from inferscale_core.kv.key_means import (
    KeyMeans,
    RankMeans,
    heads_of_rank,
    key_means_from_text,
    key_means_of_ranks,
)


def means(num_heads: int = 4, seed: int = 0) -> KeyMeans:
    rng = np.random.default_rng(seed)
    layers = {
        f"model.layers.{index}.attn": rng.normal(0, 50, (num_heads, 8)).astype(np.float16)
        for index in range(3)
    }
    return KeyMeans(layers)


def measured(whole: KeyMeans, num_ranks: int) -> list[dict[str, RankMeans]]:
    """As the ranks of an engine would: each its own heads."""
    return [
        {
            name: RankMeans(of_model[heads_of_rank(len(of_model), rank, num_ranks)].tolist(), 4)
            for name, of_model in whole.by_layer.items()
        }
        for rank in range(num_ranks)
    ]


def test_means_are_read_as_they_were_written() -> None:
    written = means()
    read = key_means_from_text(written.to_text())
    assert read.digest == written.digest
    for name, expected in written.by_layer.items():
        assert np.array_equal(read.by_layer[name], expected)


def test_other_means_have_another_digest_and_an_order_of_layers_has_none() -> None:
    first = means()
    turned = KeyMeans(dict(reversed(list(first.by_layer.items()))))
    moved = {name: value.copy() for name, value in first.by_layer.items()}
    moved["model.layers.1.attn"][3, 7] += np.float16(0.25)
    renamed = {f"{name}.other": value for name, value in first.by_layer.items()}
    reshaped = {name: value.reshape(2, 16) for name, value in first.by_layer.items()}
    assert turned.digest == first.digest
    others = [KeyMeans(layers).digest for layers in (moved, renamed, reshaped)]
    assert len({first.digest, *others}) == 4


@pytest.mark.parametrize(
    ("num_heads", "num_ranks", "heads"),
    [
        (4, 1, [[0, 1, 2, 3]]),
        (4, 2, [[0, 1], [2, 3]]),
        (4, 4, [[0], [1], [2], [3]]),
        (2, 4, [[0], [0], [1], [1]]),
        (1, 2, [[0], [0]]),
    ],
)
def test_every_rank_takes_the_heads_that_the_engine_gives_it(
    num_heads: int, num_ranks: int, heads: Sequence[list[int]]
) -> None:
    whole = means(num_heads)
    (name, *_) = whole.by_layer
    for rank, expected in enumerate(heads):
        assert list(range(num_heads))[heads_of_rank(num_heads, rank, num_ranks)] == expected
        own = whole.of_rank(name, rank, num_ranks)
        assert own is not None
        assert np.array_equal(own, whole.by_layer[name][expected])
    assert whole.of_rank("another layer", 0, num_ranks) is None


@pytest.mark.parametrize("num_ranks", [1, 2, 4, 8])
def test_ranks_in_any_number_measure_the_same_means(num_ranks: int) -> None:
    whole = means()
    assert key_means_of_ranks(measured(whole, num_ranks)).digest == whole.digest


def test_what_float16_cannot_hold_is_kept_as_near_as_it_can() -> None:
    parts = [{"layer": RankMeans([[1e9, -1e9, float("nan"), 2.0]], 1)}]
    read = key_means_from_text(key_means_of_ranks(parts).to_text())
    assert read.by_layer["layer"].tolist() == [[65504.0, -65504.0, 0.0, 2.0]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"layer":[1,2]}',
        '{"layer":[1,2,"AAAA"]}',
        '{"layer":[1,2,"AAAAA"]}',
        '{"layer":["1",2,"AAAAAA=="]}',
        '{"layer":[1,2,"AHwAAA=="]}',
    ],
)
def test_what_are_no_means_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        key_means_from_text(text)
