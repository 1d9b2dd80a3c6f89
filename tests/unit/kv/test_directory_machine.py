"""The directory over all tiers as a state machine: nothing is lost, nobody reads a wrong row."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.directory import ChunkDirectory, Transfer
from inferscale_core.kv.pages import PageBudget, PagePool
from inferscale_core.kv.readings import Reading
from inferscale_core.kv.tiers import Entry, Place, Tier
from inferscale_core.memory.facts import FactRef

SCOPES = ("left/a", "left/b", "right/a")


class DirectoryMachine(RuleBasedStateMachine):
    """Random reservations, readers, transfers, forgets and evictions against a plain model: `rows`
    holds what each row of a tier was last written for, 0 after it was zeroed, and `disk` the names
    of the records that are there."""

    @initialize(
        gpu=st.integers(3, 10),
        host=st.integers(0, 10),
        disk=st.integers(0, 20),
        page_tokens=st.integers(1, 5),
        share=st.sampled_from([0.3, 0.6, 1.0]),
    )
    def start(self, gpu: int, host: int, disk: int, page_tokens: int, share: float) -> None:
        self.directory = ChunkDirectory(
            PagePool(gpu, page_tokens),
            PagePool(host, page_tokens) if host else None,
            PageBudget(disk, page_tokens) if disk else None,
            tenant_share=share,
        )
        self.rows = {
            Tier.GPU: np.zeros(gpu * page_tokens, dtype=np.int64),
            Tier.HOST: np.zeros(host * page_tokens, dtype=np.int64),
        }
        self.disk: set[ChunkKey] = set()
        self.reserved: list[Entry] = []
        self.readings: list[Reading] = []
        self.pins: list[list[Place]] = []
        self.transfers: list[Transfer] = []
        self.names = 0
        self.is_published: dict[ChunkKey, bool] = {}

    @rule(scope=st.sampled_from(SCOPES), num_tokens=st.integers(1, 12), data=st.data())
    def reserve(self, scope: str, num_tokens: int, data: st.DataObject) -> None:
        self.names += 1
        known = [e.key for e in self.entries if e.is_published and e.key.startswith(scope)]
        sees = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        before = self.directory.num_published
        room = self.directory.gpu
        num_available = room.pages.num_pages - room.num_pinned
        entry = self.directory.reserve(
            ChunkKey(f"{scope}/{self.names}"),
            num_tokens,
            origin=0,
            fact=FactRef(FactId(str(self.names % 5)), 1),
            prefix_keys=tuple(sees),
        )
        assert (entry is None) is (room.pages.pages_for(num_tokens) > num_available)
        if entry is None:
            assert self.directory.num_published == before, "evicted in vain"
            return
        self.clean()
        assert entry.gpu is not None
        self.write(entry.gpu)
        self.reserved.append(entry)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data(), publish=st.booleans())
    def end_reservation(self, data: st.DataObject, publish: bool) -> None:
        entry = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(entry)
        if publish:
            is_gone = entry.gpu is not None and entry.gpu.is_dropped
            assert self.directory.publish(entry) is not is_gone
            self.is_published[entry.key] = not is_gone
        else:
            self.directory.release(entry)

    @rule(data=st.data(), to=st.sampled_from(list(Tier)))
    def begin(self, data: st.DataObject, to: Tier) -> None:
        """Any copy may go anywhere that has none."""
        choices = [
            (entry, place)
            for entry in self.entries
            for place in entry.places
            if entry.is_published and place.is_written and getattr(entry, to) is None
        ]
        if not choices or to not in self.directory.rooms:
            return
        entry, source = data.draw(st.sampled_from(choices))
        transfer = self.directory.begin_transfer(entry, source, to)
        if transfer is not None:
            self.clean()
            self.transfers.append(transfer)

    @precondition(lambda self: self.transfers)
    @rule(data=st.data(), succeeded=st.booleans())
    def end(self, data: st.DataObject, succeeded: bool) -> None:
        transfer = data.draw(st.sampled_from(self.transfers))
        self.transfers.remove(transfer)
        self.check(transfer.source)
        if succeeded:
            self.write(transfer.target)
        self.directory.end_transfer(transfer, succeeded=succeeded)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        if chosen := self.some_on_gpu(data):
            self.readings.append(self.directory.read(chosen))

    @precondition(lambda self: self.readings)
    @rule(data=st.data())
    def read_again(self, data: st.DataObject) -> None:
        """The very list of places that is being read: an engine may preempt a request and resume
        it while the step that read for it is in flight."""
        places = data.draw(st.sampled_from(self.readings)).places
        if not any(place.is_dropped for place in places):
            self.readings.append(self.directory.gpu.read(places))

    @precondition(lambda self: self.readings)
    @rule(data=st.data())
    def end_read(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.readings) - 1))
        self.directory.end_read(self.readings.pop(index))

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        if chosen := self.some_on_gpu(data):
            self.directory.pin(chosen)
            self.pins.append([entry.gpu for entry in chosen if entry.gpu is not None])

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        places = self.pins.pop(data.draw(st.integers(0, len(self.pins) - 1)))
        self.directory.gpu.unpin(places)

    @rule(scope=st.sampled_from(SCOPES), fact=st.integers(0, 4))
    def forget(self, scope: str, fact: int) -> None:
        forgotten = self.directory.forget(UserScope(scope), [FactId(str(fact))], self.names)
        for key in forgotten.keys:
            assert self.directory.find(key) is None
            assert not self.directory.holds(key)
            assert key.startswith(scope)
            self.is_published[key] = False
        for entry in self.entries:
            if entry.key.startswith(scope):
                assert entry.fact is not None
                assert entry.fact.fact_id != str(fact)
                assert not set(forgotten.keys) & set(entry.prefix_keys)

    @rule(data=st.data())
    def lose_a_record(self, data: st.DataObject) -> None:
        places = [e.disk for e in self.entries if e.disk is not None and e.disk.is_written]
        if places:
            place = data.draw(st.sampled_from(places))
            self.disk.discard(place.entry.key)
            self.directory.lost(place)

    @rule()
    def clean(self) -> None:
        """What ranks do with what was freed, before they write anything."""
        self.rows[Tier.GPU][self.directory.drain_to_zero()] = 0
        if Tier.HOST in self.directory.rooms:
            self.rows[Tier.HOST][self.directory.drain_host_to_zero()] = 0
        if Tier.DISK in self.directory.rooms:
            for place in self.directory.rooms[Tier.DISK].drain_freed():
                entry = self.directory.find(place.entry.key)
                if entry is None or entry.disk is None:
                    self.disk.discard(place.entry.key)
        for moved in self.directory.drain_moved():
            self.is_published[moved.key] = self.is_published[moved.key] and moved.tier is not None

    @invariant()
    def nothing_is_lost_and_every_copy_holds_what_was_written(self) -> None:
        if not hasattr(self, "directory"):
            return
        self.directory.check_conservation()
        for entry in self.entries:
            for place in entry.places:
                if place.is_written:
                    self.check(place)
        for place in self.kept:
            self.check(place)

    @invariant()
    def what_is_read_or_pinned_keeps_its_place_and_no_other_place_is_pinned(self) -> None:
        if not hasattr(self, "directory"):
            return
        kept = {id(place) for place in self.kept}
        kept |= {id(place) for entry in self.reserved for place in [entry.gpu]}
        for transfer in self.transfers:
            kept |= {id(transfer.source), id(transfer.target)}
        rooms = self.directory.rooms.values()
        pinned = [p for room in rooms for p in room.places.values() if room.is_pinned(p)]
        assert {id(place) for place in pinned} == kept
        assert self.directory.num_pinned == len(kept)
        assert sum(room.num_pinned for room in rooms) == sum(p.num_pages for p in pinned)

    @invariant()
    def what_was_told_is_what_can_be_found(self) -> None:
        if not hasattr(self, "directory"):
            return
        self.clean()
        for key, is_published in self.is_published.items():
            assert (self.directory.find(key) is not None) is is_published

    @property
    def kept(self) -> list[Place]:
        """Each once for everybody who keeps it."""
        return [place for reading in self.readings for place in reading.places] + [
            place for places in self.pins for place in places
        ]

    def some_on_gpu(self, data: st.DataObject) -> list[Entry]:
        entries = [entry for entry in self.entries if entry.is_on_gpu]
        if not entries:
            return []
        return data.draw(st.lists(st.sampled_from(entries), min_size=1, unique_by=id))

    @property
    def entries(self) -> list[Entry]:
        return list(self.directory._entries.values())

    def write(self, place: Place) -> None:
        if place.tier is Tier.DISK:
            self.disk.add(place.entry.key)
            return
        rows: Any = self.rows[place.tier]
        assert not rows[place.rows].any(), "handed out rows that were not zeroed"
        rows[place.rows] = int(place.entry.key.rpartition("/")[2])

    def check(self, place: Place) -> None:
        if place.tier is Tier.DISK:
            assert place.is_dropped or place.entry.key in self.disk
            return
        assert len(place.rows) == place.entry.num_tokens
        name = int(place.entry.key.rpartition("/")[2])
        assert (self.rows[place.tier][place.rows] == name).all()


DirectoryMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None
)
TestDirectoryMachine = DirectoryMachine.TestCase
