from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator

import pytest
import zmq
import zmq.asyncio

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.kv.tiers import Tier
from inferscale_core.vllm_connector.events import Event, EventKind, bodies_to_wire, body_of
from services.worker.engine.event_reader import EVENTS_AT_ONCE, EventReader
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.reports import Reports

SCOPE = UserScope("acme/robin")


def wire(*events: Event) -> bytes:
    return bodies_to_wire(list(map(body_of, events)))


def published(seq: int, key: str = "acme/robin/1") -> Event:
    return Event(
        seq,
        EventKind.PUBLISHED,
        {"key": key, "num_tokens": 9, "fact": "f1", "revision": 1, "tier": "gpu"},
    )


def dropped(
    seq: int, reason: str = "forgotten", key: str = "acme/robin/1", *, is_pending: bool = False
) -> Event:
    pending = ["gpu"] if is_pending else []
    return Event(seq, EventKind.DROPPED, {"key": key, "reason": reason, "pending": pending})


@pytest.fixture
def pusher() -> Iterator[Callable[[str], zmq.asyncio.Socket]]:
    """Connects a socket as the scheduler side does."""
    context, sockets = zmq.asyncio.Context(), []

    def connect(endpoint: str) -> zmq.asyncio.Socket:
        socket = context.socket(zmq.PUSH)
        socket.connect(endpoint)
        sockets.append(socket)
        return socket

    yield connect
    for socket in sockets:
        socket.close(linger=0)
    context.term()


def test_a_chunk_is_resident_from_published_to_dropped() -> None:
    mirror = DirectoryMirror()
    mirror.apply(published(1))
    assert ChunkKey("acme/robin/1") in mirror
    assert [chunk.num_tokens for chunk in mirror.of_scope(SCOPE)] == [9]
    mirror.apply(dropped(2, "evicted"))
    assert len(mirror) == 0
    assert mirror.of_scope(SCOPE) == []
    assert mirror.num_evictions == 1


def test_a_user_with_new_chunks_is_never_taken_for_an_earlier_state() -> None:
    mirror = DirectoryMirror()
    seen = [mirror.num_published(SCOPE)]
    for seq, event in enumerate([published, dropped, published, dropped, published], 1):
        mirror.apply(event(seq))
        seen.append(mirror.num_published(SCOPE))
    with_chunks = [number for number in seen if number]
    assert with_chunks == sorted(set(with_chunks))
    assert seen == [0, 1, 0, 2, 0, 3], "and nothing is kept of a user without chunks"


def test_who_watches_a_user_is_told_what_comes_and_goes_and_nothing_of_others() -> None:
    mirror = DirectoryMirror()
    with mirror.watch(SCOPE) as one, mirror.watch(SCOPE) as other:
        mirror.apply(published(1))
        mirror.apply(published(2, "acme/kim/1"))
        mirror.apply(dropped(3))
        assert list(one) == list(other) == [ChunkKey("acme/robin/1")] * 2
        one.clear()
        mirror.apply(published(4, "acme/robin/2"))
        mirror.apply(published(6, "acme/robin/3"))
        told = [ChunkKey(f"acme/robin/{number}") for number in (2, 2, 3)]
        assert list(one) == told, "a gap takes away what was there"
    mirror.apply(published(7, "acme/robin/4"))
    assert list(one) == told


def test_a_chunk_that_moves_between_tiers_stays_resident() -> None:
    mirror = DirectoryMirror()
    mirror.apply(published(1))
    for seq, tier in enumerate(["host", "disk", "gpu"], 2):
        mirror.apply(Event(seq, EventKind.MOVED, {"key": "acme/robin/1", "tier": tier}))
        assert [chunk.tier for chunk in mirror.of_scope(SCOPE)] == [Tier(tier)]
    mirror.apply(Event(5, EventKind.MOVED, {"key": "acme/robin/unknown", "tier": "host"}))
    assert len(mirror) == 1


def test_a_gap_leaves_nothing_that_could_be_wrong() -> None:
    mirror = DirectoryMirror()
    mirror.apply(published(1))
    mirror.apply(published(3, "acme/robin/3"))
    assert [chunk.key for chunk in mirror] == ["acme/robin/3"]
    assert mirror.num_gaps == 1


async def test_events_reach_the_mirror_before_the_request_they_are_about(
    pusher: Callable[[str], zmq.asyncio.Socket],
) -> None:
    mirror, reports = DirectoryMirror(), Reports()
    async with EventReader(mirror, reports) as reader:
        push = pusher(reader.endpoint)
        with reports.follow("h1") as report:
            await push.send(wire(published(1)))
            captured = {"handle": "h1", "key": "acme/robin/1"}
            await push.send(wire(Event(2, EventKind.CAPTURED, captured)))
            event = await report.first_of({EventKind.CAPTURED}, 5)
        assert event is not None
        assert ChunkKey("acme/robin/1") in mirror


async def test_a_malformed_event_does_not_end_the_reader(
    pusher: Callable[[str], zmq.asyncio.Socket],
) -> None:
    mirror, reports = DirectoryMirror(), Reports()
    async with EventReader(mirror, reports) as reader:
        push = pusher(reader.endpoint)
        for message in (b"{", b"{}", b"[1]", b"[]", b'[{"seq": 1, "kind": "published"}]', b"[{}]"):
            await push.send(message)
        await push.send(wire(published(2)))
        async with asyncio.timeout(5):
            while not len(mirror):
                await asyncio.sleep(0.01)


async def test_a_report_that_does_not_come_is_none() -> None:
    reports = Reports()
    with reports.follow("h1") as report:
        assert await report.first_of({EventKind.SERVED}, 0.01) is None
        reports.record(Event(1, EventKind.SERVED, {"handle": "h2"}))
        assert report.get(EventKind.SERVED) is None
    assert len(reports) == 0


def test_pages_waiting_for_a_reader_are_counted_until_they_are_zeroed() -> None:
    mirror = DirectoryMirror()
    mirror.apply(published(1))
    mirror.apply(dropped(2, is_pending=True))
    mirror.apply(published(3))
    mirror.apply(dropped(4))
    assert mirror.unzeroed(SCOPE) == {Tier.GPU: 1}
    mirror.apply(Event(5, EventKind.ZEROED, {"key": "acme/robin/1", "tier": "gpu"}))
    assert mirror.unzeroed(SCOPE) == {}


def test_a_zeroing_whose_drop_was_lost_hides_no_later_one() -> None:
    mirror = DirectoryMirror()
    mirror.apply(Event(2, EventKind.ZEROED, {"key": "acme/robin/1", "tier": "gpu"}))
    mirror.apply(dropped(3, is_pending=True))
    assert mirror.unzeroed(SCOPE) == {Tier.GPU: 1}


@pytest.mark.parametrize("num_messages", [1, 2_000])
async def test_others_get_their_turn_while_thousands_of_events_are_read(
    pusher: Callable[[str], zmq.asyncio.Socket], num_messages: int
) -> None:
    """Such as after a delete that drops as many chunks."""
    mirror, number = DirectoryMirror(), 2_000
    events = [published(seq, f"acme/robin/{seq}") for seq in range(1, number + 1)]
    async with EventReader(mirror, Reports()) as reader:
        socket = pusher(reader.endpoint)
        for start in range(0, number, number // num_messages):
            await socket.send(wire(*events[start : start + number // num_messages]))
        seen = set()
        async with asyncio.timeout(20):
            while len(mirror) < number:
                await asyncio.sleep(0)
                seen.add(len(mirror))
    steps = [after - before for before, after in itertools.pairwise(sorted(seen))]
    assert max(steps) <= 2 * EVENTS_AT_ONCE
