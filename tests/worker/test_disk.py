"""From control's answer to the disk: what a worker takes up again, and what it may not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
import torch

from inferscale_core.errors import EngineError
from inferscale_core.ids import ChunkKey, FactId, ModelRevision
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.disk_store import DiskStore, open_disk_store
from inferscale_core.memory.canonical import ChunkSpec, header_key
from inferscale_core.prompt import PromptFormat
from inferscale_core.retrieval import ChunkRules, SearchDevice, UserSnapshot
from inferscale_core.vllm_connector.events import Event, EventKind
from services.worker import disk as module
from services.worker.disk import EngineDisk
from services.worker.engine.protocol import ArenaSize, EngineOutput, EngineRequest
from services.worker.engine.reports import Reports
from services.worker.users import UserCache, new_snapshot_factory
from tests.worker.conftest import RECIPE, TOKENIZER
from tests.worker.control import DIMENSION, MemoryControl, disk_key

TOKEN = "a token of control and workers"
ROWS = bytes(range(200))


class OneRank:
    """An engine that does nothing but compare its disk, with the store of one rank."""

    arena = ArenaSize(100, 4, 100)
    max_model_len = 4_000

    def __init__(self, folder: Path, reports: Reports) -> None:
        self.secret = StoreSecret.from_token(TOKEN)
        self.store = open_disk_store(folder, self.secret, max_bytes=1 << 20, layout="a row")
        self.requests: list[EngineRequest] = []
        self.before: Callable[[], None] = lambda: None
        self._reports = reports

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        self.requests.append(request)
        self.before()
        command = request.params.adopt
        assert command is not None
        key = self.secret.unseal(command.scope, command.sealed_key)
        records = self.store.admit(command.scope, key, command.wanted)
        fields = {"handle": request.params.handle, "num_chunks": len(records)}
        self._reports.record(Event(1, EventKind.ADOPTED, fields))
        yield EngineOutput("", 1, "length", 1.0, 1.25, 1.5)


class Worker:
    """The user cache over one rank's disk."""

    def __init__(self, folder: Path, control: MemoryControl) -> None:
        prompt_format = PromptFormat(TOKENIZER, RECIPE)
        revision, header_ids = ModelRevision("tiny@1"), prompt_format.header_ids
        key = header_key(revision, RECIPE.hash, header_ids)
        rules = ChunkRules(revision, RECIPE, key, len(header_ids), 3_999)
        reports = Reports()
        self.control = control
        self.engine = OneRank(folder, reports)
        self.users = UserCache(
            control,
            prompt_format,
            new_snapshot_factory(rules, DIMENSION, SearchDevice(torch.device("cpu"), 0)),
            100,
            disk=EngineDisk(self.engine, reports, StoreSecret.from_token(TOKEN), header_ids[:1]),
        )

    @property
    def store(self) -> DiskStore:
        return self.engine.store

    async def snapshot(self) -> UserSnapshot:
        return await self.users.at_least(self.control.at())

    async def store_all(self) -> dict[FactId, ChunkKey]:
        """As encoding would: a record of every chunk that the user should have."""
        specs = (await self.snapshot()).specs
        assert all(self.store.put(_record(spec), ROWS).is_stored for spec in specs.values())
        return {fact_id: spec.key for fact_id, spec in specs.items()}

    def readable(self, keys: dict[FactId, ChunkKey]) -> set[str]:
        into = bytearray(len(ROWS))
        return {fact_id for fact_id, key in keys.items() if self.store.read(key, into)}


def _record(spec: ChunkSpec) -> DiskRecord:
    return DiskRecord(spec.key, spec.fact, 20, 40, spec.prefix_keys)


@pytest.fixture
def control() -> MemoryControl:
    """Three facts of one user. c looks at a and b, b at a."""
    control = MemoryControl()
    control.with_disk_keys = True
    for fact_id, text in (("a", "Robin has a dog"), ("b", "A dog barks"), ("c", "It is late")):
        control.add(fact_id, text)
    return control


async def test_a_restarted_worker_takes_up_what_the_user_should_have(
    tmp_path: Path, control: MemoryControl
) -> None:
    worker = Worker(tmp_path, control)
    keys = await worker.store_all()
    worker.store.close()
    again = Worker(tmp_path, control)
    assert again.readable(keys) == set(), "not before control was asked"
    await again.snapshot()
    assert again.readable(keys) == {"a", "b", "c"}


async def test_after_a_delete_while_it_was_down_a_worker_finds_nothing_of_the_old_epoch(
    tmp_path: Path, control: MemoryControl
) -> None:
    worker = Worker(tmp_path, control)
    keys = await worker.store_all()
    worker.store.close()
    control.remove("c")
    again = Worker(tmp_path, control)
    await again.snapshot()
    assert again.readable(keys) == set()
    assert again.store.num_records == 0


async def test_a_worker_that_runs_keeps_what_did_not_see_the_deleted_fact(
    tmp_path: Path, control: MemoryControl
) -> None:
    worker = Worker(tmp_path, control)
    keys = await worker.store_all()
    control.remove("b")
    await worker.snapshot()
    assert worker.readable(keys) == {"a"}
    worker.store.close()
    again = Worker(tmp_path, control)
    await again.snapshot()
    assert again.readable(keys) == {"a"}, "sealed under the key of the new epoch"


async def test_facts_that_were_added_while_it_was_down_take_nothing_away(
    tmp_path: Path, control: MemoryControl
) -> None:
    worker = Worker(tmp_path, control)
    keys = await worker.store_all()
    worker.store.close()
    control.add("d", "Robin plays chess")
    again = Worker(tmp_path, control)
    await again.snapshot()
    assert again.readable(keys) == {"a", "b", "c"}


async def test_the_disk_is_compared_at_the_first_touch_and_after_each_epoch_only(
    tmp_path: Path, control: MemoryControl
) -> None:
    worker = Worker(tmp_path, control)
    for _ in range(2):
        await worker.snapshot()
    control.add("d", "Robin plays chess")
    await worker.snapshot()
    assert len(worker.engine.requests) == 1
    control.remove("d")
    await worker.snapshot()
    control.add("a", "Robin has two dogs")
    await worker.snapshot()
    epochs = [
        int(request.params.adopt.sealed_key.partition(".")[0])
        for request in worker.engine.requests
        if request.params.adopt
    ]
    assert epochs == [0, 1, 2]


async def test_a_comparison_can_be_left_to_the_next_call(
    tmp_path: Path, control: MemoryControl
) -> None:
    """As a forget does, so that it counts itself what it drops on disk."""
    worker = Worker(tmp_path, control)
    keys = await worker.store_all()
    control.remove("b")
    await worker.users.at_least(control.at(), with_disk=False)
    assert worker.readable(keys) == {"a", "b", "c"}
    await worker.users.compare_disk(control.at())
    assert worker.readable(keys) == {"a"}
    await worker.users.compare_disk(control.at())
    assert len(worker.engine.requests) == 2


async def test_without_a_key_from_control_the_disk_is_left_alone(
    tmp_path: Path, control: MemoryControl
) -> None:
    control.with_disk_keys = False
    worker = Worker(tmp_path, control)
    assert len((await worker.snapshot()).facts) == 3
    assert worker.engine.requests == []


async def test_a_comparison_that_fails_costs_the_disk_and_not_the_call(
    tmp_path: Path, control: MemoryControl
) -> None:
    worker = Worker(tmp_path, control)
    keys = await worker.store_all()
    worker.store.close()

    def fail() -> None:
        raise EngineError("this request failed")

    again = Worker(tmp_path, control)
    again.engine.before = fail
    assert len((await again.snapshot()).facts) == 3
    assert again.readable(keys) == set()
    again.engine.before = lambda: None
    control.add("d", "Robin plays chess")
    await again.snapshot()
    assert again.readable(keys) == {"a", "b", "c"}, "it is tried again with the next changes"


async def test_an_engine_that_does_not_answer_is_not_waited_for_for_ever(
    tmp_path: Path, control: MemoryControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ADOPTED_WAIT_S", 0.01)
    monkeypatch.setattr(Reports, "record", lambda *_: None)
    worker = Worker(tmp_path, control)
    assert len((await worker.snapshot()).facts) == 3


async def test_the_key_is_nowhere_in_what_the_engine_is_sent(
    tmp_path: Path, control: MemoryControl
) -> None:
    """vLLM writes its requests to the log when it dies."""
    worker = Worker(tmp_path, control)
    await worker.snapshot()
    secret = disk_key("acme", "robin", 0).secret
    [request] = worker.engine.requests
    assert secret.hex() not in str(request.params.to_wire())
    assert repr(secret)[2:-1] not in repr(request)
