from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from inferscale_core.vllm_connector import idle_heap
from inferscale_core.vllm_connector.idle_heap import IdleHeap


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_has_come_is_left_alone_from_the_next_idle_moment_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heap, num_collections = IdleHeap(), idle_heap._num_collections()
    heap.maybe()
    assert gc.get_freeze_count() == 0, "little has come"
    many = idle_heap.MIN_COLLECTIONS + num_collections
    monkeypatch.setattr(idle_heap, "_num_collections", lambda: many)
    kept = [{} for _ in range(1_000)]  # type: ignore[var-annotated]
    heap.maybe()
    assert gc.get_freeze_count() > len(kept)
    looked_at = {id(one) for one in gc.get_objects()}
    assert not looked_at & set(map(id, kept))


def test_collections_are_counted_where_objects_stay() -> None:
    before = idle_heap._num_collections()
    kept = [[number] for number in range(100_000)]
    assert idle_heap._num_collections() >= before + idle_heap.MIN_COLLECTIONS
    del kept
