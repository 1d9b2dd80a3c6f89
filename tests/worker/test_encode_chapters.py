"""Encoding a user whose memory is cut into chapters."""

from __future__ import annotations

from inferscale_core.memory.recipes import Recipe
from tests.worker.conftest import FakeWorker, MakeWorker

CHAPTERS = Recipe("chapters", num_neighbours=8, chapter=4)


def of_two_chapters(make_worker: MakeWorker) -> FakeWorker:
    """Versions 1 to 3, of which all saw the first, and 4 to 7, of which all saw the fourth."""
    worker = make_worker(CHAPTERS)
    for version in range(1, 8):
        worker.control.add(f"f{version}", f"Robin counts to {version}")
    return worker


async def encode(worker: FakeWorker) -> set[str]:
    """Ids of the facts that the engine computed."""
    before = len(worker.engine.captures())
    async for result in worker.parts.encode(worker.control.at()):
        assert result.reason is None
    new = worker.engine.captures()[before:]
    return {capture.fact.fact_id for capture in new if capture.fact is not None}


async def test_a_delete_makes_its_own_chapter_be_encoded_again(make_worker: MakeWorker) -> None:
    worker = of_two_chapters(make_worker)
    assert await encode(worker) == {f"f{version}" for version in range(1, 8)}
    worker.control.remove("f1")
    assert await encode(worker) == {"f2", "f3"}
    worker.control.remove("f5")
    assert await encode(worker) == {"f6", "f7"}


async def test_chapters_are_encoded_side_by_side(make_worker: MakeWorker) -> None:
    worker = of_two_chapters(make_worker)
    await encode(worker)
    assert worker.engine.max_running == 2
    seen = {
        capture.fact.fact_id: len(capture.prefix_keys)
        for capture in worker.engine.captures()
        if capture.fact is not None
    }
    assert seen == {"f1": 0, "f2": 1, "f3": 2, "f4": 0, "f5": 1, "f6": 2, "f7": 3}
