from __future__ import annotations

import gc

import torch

from inferscale_core.ids import FactId
from inferscale_core.retrieval.rows import SearchDevice, VectorRows
from inferscale_core.retrieval.vectors import FactVectors

CPU = torch.device("cpu")
DIMENSION = 8
ROWS_BYTES = 64 * DIMENSION * 4
"""Of a user with few facts."""


def unit_rows(num: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(num, DIMENSION, generator=generator), dim=1)


def facts(*numbers: int) -> list[FactId]:
    return [FactId(f"f{number:04}") for number in numbers]


def vectors_of(num: int, device: SearchDevice, seed: int = 0) -> FactVectors:
    return FactVectors.empty(DIMENSION, device).replaced(
        (), facts(*range(num)), unit_rows(num, seed)
    )


def test_new_facts_are_appended_without_a_copy_of_the_old_ones() -> None:
    few = vectors_of(10, SearchDevice.host())
    more = few.replaced((), facts(10, 11), unit_rows(2, seed=1))
    assert more.rows is few.rows
    assert few.matrix.data_ptr() == more.matrix.data_ptr()
    assert torch.equal(few.matrix, more.matrix[:10])
    assert len(few.matrix) == 10


def test_two_versions_that_grew_from_one_do_not_share_what_they_added() -> None:
    few = vectors_of(10, SearchDevice.host())
    one = few.replaced((), facts(10), unit_rows(1, seed=1))
    other = few.replaced((), facts(10), unit_rows(1, seed=2))
    assert other.rows is not one.rows
    assert not torch.equal(one.matrix[10], other.matrix[10])
    assert torch.equal(one.matrix[:10], other.matrix[:10])


def test_rows_are_copied_a_few_times_only_while_a_user_grows() -> None:
    vectors = vectors_of(1, SearchDevice.host())
    moved = 0
    for number in range(1, 2000):
        grown = vectors.replaced((), facts(number), unit_rows(1, seed=number))
        moved += grown.rows is not vectors.rows
        vectors = grown
    assert moved <= 6
    assert len(vectors.matrix) == 2000


def test_what_was_removed_is_in_no_row_of_the_new_version() -> None:
    before = vectors_of(10, SearchDevice.host())
    after = before.replaced(facts(3), [], None)
    gone = before.matrix[3]
    assert after.ids == tuple(facts(0, 1, 2, 4, 5, 6, 7, 8, 9))
    assert after.rows is not before.rows
    assert not bool((after.matrix == gone).all(dim=1).any())


def test_a_search_on_the_device_equals_one_on_the_host() -> None:
    device = SearchDevice(CPU, 1 << 20)
    query = unit_rows(1, seed=9)[0]
    vectors, on_host = vectors_of(50, device), vectors_of(50, SearchDevice.host())
    for number in range(50, 60):
        assert vectors.nearest(query, 7) == on_host.nearest(query, 7)
        assert vectors.on_device().data_ptr() != vectors.matrix.data_ptr()
        added = facts(number), unit_rows(1, seed=number)
        vectors, on_host = vectors.replaced((), *added), on_host.replaced((), *added)


def test_the_device_takes_what_was_added_and_keeps_what_it_has() -> None:
    device = SearchDevice(CPU, 1 << 20)
    few = vectors_of(10, device)
    held = few.on_device()
    more = few.replaced((), facts(10), unit_rows(1, seed=1))
    assert more.on_device().data_ptr() == held.data_ptr()
    assert torch.equal(more.on_device(), more.matrix)
    assert torch.equal(few.on_device(), few.matrix)


def test_users_searched_longest_ago_give_way_on_the_device() -> None:
    device = SearchDevice(CPU, 2 * ROWS_BYTES)
    one, two, three = (vectors_of(5, device, seed) for seed in range(3))
    places = [vectors.on_device().data_ptr() for vectors in (one, two)]
    assert one.on_device().data_ptr() == places[0]
    three.on_device()
    assert device.resident_bytes == 2 * ROWS_BYTES
    assert one.on_device().data_ptr() == places[0], "two was searched longest ago"
    assert torch.equal(two.on_device(), two.matrix)
    assert device.resident_bytes == 2 * ROWS_BYTES


def test_rows_too_large_for_the_device_are_searched_on_the_host() -> None:
    device = SearchDevice(CPU, ROWS_BYTES)
    large = vectors_of(500, device)
    assert large.on_device().data_ptr() == large.matrix.data_ptr()
    assert device.resident_bytes == 0


def test_a_user_who_is_dropped_leaves_the_device() -> None:
    device = SearchDevice(CPU, 1 << 20)
    vectors = vectors_of(5, device)
    vectors.on_device()
    assert device.resident_bytes == ROWS_BYTES
    del vectors
    gc.collect()
    assert device.resident_bytes == 0


def test_rows_may_be_appended_only_where_a_version_ends() -> None:
    rows = VectorRows.of(unit_rows(3))
    longer = rows.appended(3, unit_rows(1, seed=1))
    assert longer is rows
    other = rows.appended(2, unit_rows(1, seed=2))
    assert other is not rows
    assert torch.equal(rows.first(4)[3:], unit_rows(1, seed=1))
