from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from inferscale_core.retrieval.similarity import (
    MAX_RANKED_ROWS,
    as_exact,
    best,
    ranks,
    similarities,
    unranked,
)


def unit_vectors(num: int, dimension: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(num, dimension, generator=generator)
    return torch.nn.functional.normalize(vectors, dim=1)


def test_a_similarity_is_the_same_number_however_it_is_summed() -> None:
    for dimension in (3, 384, 3072):
        rows = as_exact(unit_vectors(50, dimension, seed=dimension))
        at_once = similarities(rows, rows)
        permuted = torch.randperm(dimension, generator=torch.Generator().manual_seed(1))
        for i in (0, 17, 49):
            alone = similarities(rows[i : i + 1], rows[3:4])[0, 0]
            shuffled = (rows[i, permuted].double() * rows[3, permuted].double()).cumsum(0)[-1]
            assert at_once[i, 3] == alone == shuffled == similarities(rows[3:4], rows)[0, i]


def test_plain_float32_would_not_have_that_property() -> None:
    rows = unit_vectors(50, 384, seed=0)
    permuted = torch.randperm(384, generator=torch.Generator().manual_seed(1))
    assert bool((rows[:, permuted] @ rows[0, permuted] != rows @ rows[0]).any())


def test_rounding_moves_a_similarity_by_less_than_float32_would() -> None:
    vectors = unit_vectors(200, 384, seed=2)
    exact = similarities(as_exact(vectors), as_exact(vectors))
    true = vectors.double() @ vectors.double().T
    assert float((exact - true).abs().max()) < 3e-7


def ranked(scores: torch.Tensor, limit: int) -> list[int]:
    indices: list[int] = best(scores, limit)[1].tolist()
    return indices


def test_ranking_puts_the_greatest_first_and_ties_by_index() -> None:
    assert ranked(torch.tensor([0.5, 0.9, 0.5, 0.9]), 3) == [1, 3, 0]
    assert ranked(torch.tensor([1.0]), 0) == []
    assert ranked(torch.tensor([]), 3) == []
    assert ranked(torch.tensor([0.5, -torch.inf, 0.7]), 5) == [2, 0, 1]


@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=7, max_size=7), min_size=1), st.integers(0, 9)
)
def test_ranking_equals_a_stable_sort(rows: list[list[int]], limit: int) -> None:
    scores = torch.tensor(rows, dtype=torch.float64).masked_fill_(
        torch.tensor(rows) == -2, -torch.inf
    )
    values, indices = best(scores, limit)
    expected = torch.sort(scores, dim=1, descending=True, stable=True)
    assert torch.equal(indices, expected.indices[:, :limit])
    assert torch.equal(values, expected.values[:, :limit])


@given(
    st.lists(st.sampled_from([-1.002, -1.0, -(2.0**-48), 0.0, 2.0**-48, 0.5, 1.0, 1.002])),
    st.integers(0, 9),
)
def test_similarity_and_row_in_one_number_rank_as_both_do(values: list[float], limit: int) -> None:
    scores = torch.tensor(values, dtype=torch.float64)
    exact = (scores * 2**48).round() / 2**48
    wanted, rows = best(exact, limit)
    found = unranked(ranks(exact, limit).tolist())
    assert found == list(zip(rows.tolist(), wanted.tolist(), strict=True))


def test_as_many_rows_as_fit_are_told_apart() -> None:
    rows = as_exact(unit_vectors(100, 8, seed=3)).repeat(164, 1)[:MAX_RANKED_ROWS]
    for query in (rows[0], -rows[0]):
        scores = similarities(query[None], rows)[0]
        wanted, places = best(scores, 400)
        found = unranked(ranks(scores, 400).tolist())
        assert found == list(zip(places.tolist(), wanted.tolist(), strict=True))
