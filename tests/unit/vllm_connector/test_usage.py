from __future__ import annotations

import pytest

from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.directory import ChunkDirectory, Entry
from inferscale_core.kv.pages import PagePool
from inferscale_core.memory.facts import FactRef
from inferscale_core.vllm_connector.sinks import EventLog, MemorySink
from inferscale_core.vllm_connector.usage import MIN_INTERVAL_S, UsageReport


class Usage:
    """A directory of arena and host, and what is told of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sink = MemorySink()
        self.directory = ChunkDirectory(PagePool(10, 4), PagePool(20, 4))
        self.log = EventLog(self.sink)
        self.report = UsageReport(self.directory, self.log, lambda: self.now)

    def store(self, name: str) -> Entry:
        entry = self.directory.reserve(
            ChunkKey(f"t/u/{name}"), 8, origin=0, fact=FactRef(FactId(name), 1), prefix_keys=()
        )
        assert entry is not None
        self.directory.publish(entry)
        return entry

    @property
    def told(self) -> list[tuple[int, int]]:
        """Pages of the arena that are held and pinned."""
        self.log.flush()
        fields = [event.fields for event in self.sink.events]
        return [(each["num_pages"]["gpu"], each["num_pinned"]["gpu"]) for each in fields]


@pytest.fixture
def usage() -> Usage:
    return Usage()


def test_while_requests_run_changes_are_told_now_and_then(usage: Usage) -> None:
    for number in range(3):
        usage.store(str(number))
        usage.report.changed(is_idle=False)
    assert usage.told == [(2, 0)]
    usage.now = MIN_INTERVAL_S
    usage.report.changed(is_idle=False)
    usage.report.changed(is_idle=False)
    assert usage.told == [(2, 0), (6, 0)]


def test_the_last_change_is_told_when_the_engine_comes_to_rest(usage: Usage) -> None:
    entry = usage.store("x")
    reading = usage.directory.read([entry])
    usage.report.changed(is_idle=False)
    usage.directory.end_read(reading)
    usage.report.changed(is_idle=False)
    assert usage.told == [(2, 2)], "too soon"
    usage.report.changed(is_idle=True)
    usage.report.changed(is_idle=True)
    assert usage.told == [(2, 2), (2, 0)], "once"
