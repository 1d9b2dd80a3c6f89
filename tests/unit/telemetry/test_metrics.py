from __future__ import annotations

from collections.abc import Iterator

import pytest

from inferscale_core.telemetry import metrics, names
from inferscale_core.telemetry.metrics import CacheMetrics, QueueMetrics
from tests.telemetry_capture import Capture, captured


@pytest.fixture
def telemetry() -> Iterator[Capture]:
    with captured() as capture:
        yield capture


def _labelled(**labels: str) -> tuple[tuple[str, str], ...]:
    keys = {"cache": names.CACHE, "queue": names.QUEUE_NAME, "outcome": names.OUTCOME}
    keys |= {"serving": names.SERVING, "stage": names.STAGE}
    return tuple(sorted((keys[name], value) for name, value in labels.items()))


def test_a_cache_reports_hits_misses_evictions_and_bytes(telemetry: Capture) -> None:
    """Counts are of the process, in which other tests may have counted too."""
    cache = CacheMetrics("users", resident_bytes=lambda: 4096, pinned_bytes=lambda: 128)
    before = telemetry.values()
    cache.hit(3)
    cache.miss()
    cache.evicted(2)
    values = telemetry.values()

    def counted(name: str, **labels: str) -> float:
        series = (name, _labelled(cache="users", **labels))
        return values[series] - before.get(series, 0)

    assert counted(names.CACHE_LOOKUPS, outcome="hit") == 3
    assert counted(names.CACHE_LOOKUPS, outcome="miss") == 1
    assert counted(names.CACHE_EVICTIONS) == 2
    assert values[names.CACHE_RESIDENT, _labelled(cache="users")] == 4096
    assert values[names.CACHE_PINNED, _labelled(cache="users")] == 128


def test_a_queue_reports_depth_and_age(telemetry: Capture) -> None:
    QueueMetrics("encode", depth=lambda: 7, oldest_age_s=lambda: 1.5)
    values = telemetry.values()
    assert values[names.QUEUE_DEPTH, _labelled(queue="encode")] == 7
    assert values[names.QUEUE_AGE, _labelled(queue="encode")] == 1.5


def test_two_caches_are_two_series_and_a_new_one_of_a_name_takes_its_place(
    telemetry: Capture,
) -> None:
    for cache, size in (("one", 1), ("other", 2), ("one", 3)):
        CacheMetrics(cache, resident_bytes=lambda size=size: size)
    values = telemetry.values()
    assert values[names.CACHE_RESIDENT, _labelled(cache="one")] == 3
    assert values[names.CACHE_RESIDENT, _labelled(cache="other")] == 2


def test_a_reader_that_fails_leaves_the_others_reporting(telemetry: Capture) -> None:
    def fail() -> int:
        raise RuntimeError

    CacheMetrics("broken", resident_bytes=fail)
    CacheMetrics("sound", resident_bytes=lambda: 5)
    values = telemetry.values()
    assert (names.CACHE_RESIDENT, _labelled(cache="broken")) not in values
    assert values[names.CACHE_RESIDENT, _labelled(cache="sound")] == 5


def test_a_chat_is_counted_by_the_way_it_was_served(telemetry: Capture) -> None:
    key = (names.CHAT_TOKENS, _labelled(serving="injected"))
    step = (names.CHAT_STAGE, _labelled(stage=names.INJECT))
    before = telemetry.values()
    metrics.chat_served(
        tokens_by_serving={"injected": 600, "prefilled": 40}, facts_by_serving={"injected": 20}
    )
    metrics.chat_step(names.INJECT, 0.003)
    values = telemetry.values()
    assert values[key] == before.get(key, 0) + 600
    assert values[step] == before.get(step, 0) + 1
