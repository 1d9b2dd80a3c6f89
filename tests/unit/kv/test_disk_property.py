"""The disk tier against a dictionary: across restarts, deletes, evictions and damage."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.memory.canonical import scope_of
from tests.unit.kv.disk_factories import (
    MIRA,
    OSCAR,
    a_disk_key,
    a_key,
    a_record,
    files_of,
    open_store,
    read,
)

SCOPES = (MIRA, OSCAR)
NAMES = tuple("ABCDE")
SIZES = (1, 90, 400)
MAX_BYTES = 3_000

scopes = st.sampled_from(SCOPES)
keys = st.builds(a_key, st.sampled_from(NAMES), scopes)


def _content(generation: int, num_bytes: int) -> bytes:
    return bytes((generation + i) % 251 for i in range(num_bytes))


class DiskTier(RuleBasedStateMachine):
    """stored: rows that the store must give when asked. dormant: what a restart left unadmitted,
    with the epoch it was sealed under. What is in neither must never be given."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="inferscale-disk-"))
        self.generation = 0

    @initialize()
    def begin(self) -> None:
        self.store = open_store(self.folder, max_bytes=MAX_BYTES)
        self.epoch: dict[UserScope, int] = dict.fromkeys(SCOPES, 1)
        self.admitted: dict[UserScope, int] = {}
        self.stored: dict[ChunkKey, bytes] = {}
        self.dormant: dict[ChunkKey, tuple[int, bytes]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(key=keys, num_bytes=st.sampled_from(SIZES))
    def put(self, key: ChunkKey, num_bytes: int) -> None:
        self.generation += 1
        rows = _content(self.generation, num_bytes)
        before = {path.name for path in files_of(self.folder)}
        result = self.store.put(a_record(key), rows)
        assert result.is_stored == (scope_of(key) in self.admitted)
        for evicted in result.evicted:
            # What was admitted is named; of what nobody knows, the file is gone all the same.
            self.stored.pop(evicted)
        if result.is_stored:
            self.stored[key] = rows
            self.dormant.pop(key, None)
        else:
            assert before == {path.name for path in files_of(self.folder)}

    @rule(key=keys)
    def read(self, key: ChunkKey) -> None:
        expected = self.stored.get(key)
        found = read(self.store, key, len(expected) if expected else 1)
        assert found == expected

    @rule(key=keys)
    def remove(self, key: ChunkKey) -> None:
        count = self.store.remove([key])
        assert count == 1 if key in self.stored else count <= (key in self.dormant)
        self.stored.pop(key, None)
        self.dormant.pop(key, None)

    @rule(scope=scopes)
    def delete_a_fact(self, scope: UserScope) -> None:
        """In Postgres: the key of the epoch is destroyed. The worker hears of it with `compare`."""
        self.epoch[scope] += 1

    @rule(scope=scopes, names=st.sets(st.sampled_from(NAMES)))
    def compare(self, scope: UserScope, names: set[str]) -> None:
        wanted = {a_key(name, scope) for name in names}
        records = self.store.admit(scope, self._disk_key(scope), wanted)
        keys = {record.key for record in records}
        assert all(record == a_record(record.key) for record in records)
        known = {key for key in self.stored if scope_of(key) == scope}
        left = {key for key in self.dormant if scope_of(key) == scope}
        assert keys & known == known & wanted
        for key in left:
            sealed_under, rows = self.dormant.pop(key)
            if key in keys:
                assert sealed_under == self.epoch[scope], "an old epoch came back"
                self.stored[key] = rows
        assert keys <= wanted & (known | left)
        for key in known - wanted:
            del self.stored[key]
        self.admitted[scope] = self.epoch[scope]

    @rule()
    def restart(self) -> None:
        self.store.close()
        for key, rows in self.stored.items():
            self.dormant[key] = (self.admitted[scope_of(key)], rows)
        self.stored.clear()
        self.admitted.clear()
        self.store = open_store(self.folder, max_bytes=MAX_BYTES)

    @rule(key=keys, place=st.integers(0, 10_000))
    def damage(self, key: ChunkKey, place: int) -> None:
        """A bit of a record that can be read now is turned, in its rows or in what opens it."""
        if key not in self.stored:
            return
        path = self._path(key)
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 1
        path.write_bytes(content)
        found = read(self.store, key, len(self.stored[key]))
        assert found in (None, self.stored[key]), "what is read is never wrong"
        # A head that is damaged now is noticed by the next comparison, so the model ends it here.
        self.store.remove([key])
        del self.stored[key]

    @invariant()
    def bytes_are_conserved_and_bounded(self) -> None:
        self.store.check_conservation()
        assert self.store.num_records == len(files_of(self.folder))

    def _path(self, key: ChunkKey) -> Path:
        [path] = [
            path for path in files_of(self.folder) if path.name == self.store._secret.name(key)
        ]
        return path

    def _disk_key(self, scope: UserScope):
        return a_disk_key(self.epoch[scope], scope)


DiskTier.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDiskTier = DiskTier.TestCase
