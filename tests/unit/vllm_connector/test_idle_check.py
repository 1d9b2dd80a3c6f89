from __future__ import annotations

import pytest

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.pages import PagePool
from inferscale_core.memory.facts import FactRef
from inferscale_core.vllm_connector.idle_check import CHECK_EVERY_S, IdleCheck


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def directory() -> ChunkDirectory:
    directory = ChunkDirectory(PagePool(10, 4))
    entry = directory.reserve(
        ChunkKey("acme/robin/x"), 8, origin=0, fact=FactRef(FactId("x"), 1), prefix_keys=()
    )
    assert entry is not None
    directory.publish(entry)
    return directory


def test_a_lost_page_is_found_when_the_engine_is_idle_and_nothing_is_raised(
    directory: ChunkDirectory,
) -> None:
    clock = Clock()
    check = IdleCheck(directory, clock)
    directory.gpu.pages._first_new += 1  # type: ignore[attr-defined]
    check.maybe()
    assert check.problem is None, "checked rarely"
    clock.now = CHECK_EVERY_S
    check.maybe()
    assert check.problem == "1 pages are lost"


def test_a_sound_directory_is_checked_again_and_again(directory: ChunkDirectory) -> None:
    clock = Clock()
    check = IdleCheck(directory, clock)
    for _ in range(3):
        clock.now += CHECK_EVERY_S
        check.maybe()
    assert check.problem is None
