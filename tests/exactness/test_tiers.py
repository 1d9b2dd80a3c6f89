"""An arena too small for a user: what is restored from lower tiers serves as if it had never left.

Requests wait for their chunks outside the running batch, deletes and aborts come in between, and
the disk's records outlive the engine.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from inferscale_core.ids import ChunkKey, UserScope
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.disk_store import open_disk_store
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Adopt, RequestParams
from tests.engine_kit import Answer, TinyEngine, random_tokens
from tests.tiny_models import LLAMA

pytestmark = pytest.mark.engine

IS_GPU = torch.cuda.is_available()
DTYPE = "bfloat16" if IS_GPU else "float32"
NUM_FACTS, FACT_TOKENS, NUM_NEIGHBOURS, NUM_ASKED = 14, 36, 4, 6
ARENA_TOKENS = 300
"""Holds 8 facts of 14: fewer than two chats ask for."""

Chunk = tuple[ChunkKey, list[int]]


def row_bytes(dtype: str) -> int:
    return LLAMA_ELEMENTS * (2 if dtype == "bfloat16" else 4)


LLAMA_ELEMENTS = 3 * 2 * 2 * 32
"""3 layers, K and V of 2 heads of 32."""


def tiered(model_folder: Path, **tiers: Any) -> TinyEngine:
    return TinyEngine(
        LLAMA.save(model_folder),
        DTYPE,
        arena_bytes=ARENA_TOKENS * row_bytes(DTYPE),
        max_model_len=1024,
        max_num_batched_tokens=1024,
        tiers=tiers,
    )


@pytest.fixture(scope="module")
def asked(model_folder: Path) -> list[list[Answer]]:
    """What an engine answers whose arena holds everything."""
    engine = TinyEngine(
        LLAMA.save(model_folder), DTYPE, max_model_len=1024, max_num_batched_tokens=1024
    )
    chunks = store_user(engine)
    answers = [chat(engine, chunks, number) for number in range(6)]
    engine.close()
    return answers


@pytest.fixture(scope="module")
def tiers(model_folder: Path, asked: Any) -> Iterator[TinyEngine]:
    """Depends on `asked` so that a process holds one engine at a time."""
    engine = tiered(model_folder, host_bytes=3000 * row_bytes(DTYPE))
    yield engine
    engine.close()


@pytest.fixture
def idle_afterwards(tiers: TinyEngine) -> Iterator[None]:
    yield
    tiers.assert_idle()
    assert tiers.side.tiering.num_waiting == 0


def store_user(engine: TinyEngine, scope: str = "tenant/user") -> list[Chunk]:
    """Each fact behind a few that were stored before it, as encoding does."""
    rng = random.Random(1)
    chunks: list[Chunk] = []
    for index in range(NUM_FACTS):
        tokens = random_tokens(rng, FACT_TOKENS)
        neighbours = rng.sample(chunks, min(len(chunks), NUM_NEIGHBOURS))
        key = ChunkKey(f"{scope}/{index}")
        engine.encode(neighbours, key, tokens, fact_id=str(index), version=1)
        chunks.append((key, tokens))
        engine.settle()
    return chunks


def chat(engine: TinyEngine, chunks: list[Chunk], number: int) -> list[Answer]:
    """Two, each about facts of its own. One after the other: a step's batch decides the last bits
    of a float32 product, and who waits for chunks is in another batch."""
    rng = random.Random(number)
    answers = []
    for _ in range(2):
        chosen = rng.sample(chunks, NUM_ASKED)
        prompt = [token for _, tokens in chosen for token in tokens] + random_tokens(rng, 9)
        answers.append(engine.ask(prompt, engine.injected(chosen)))
    return answers


def tiers_of(engine: TinyEngine, chunks: list[Chunk]) -> list[Tier]:
    entries = [engine.side.directory.find(key) for key, _ in chunks]
    return [entry.fastest.tier for entry in entries if entry is not None]


@pytest.mark.usefixtures("idle_afterwards")
def test_a_user_larger_than_the_arena_is_fully_injected_and_answered_bit_for_bit(
    tiers: TinyEngine, asked: list[list[Answer]]
) -> None:
    chunks = store_user(tiers)
    assert all(tiers.side.directory.find(key) for key, _ in chunks), "nothing was lost"
    assert Tier.HOST in tiers_of(tiers, chunks), "not all of it fits in the arena"
    for number, expected in enumerate(asked):
        answers = chat(tiers, chunks, number)
        assert [answer.cached for answer in answers] == [NUM_ASKED * FACT_TOKENS] * 2
        for answer, wanted in zip(answers, expected, strict=True):
            assert answer.token_ids == wanted.token_ids
            assert answer.logprobs == wanted.logprobs
    assert tiers.events(EventKind.MOVED), "chunks went down and came up"
    assert not [e for e in tiers.events(EventKind.DROPPED) if e["reason"] == "evicted"]


@dataclass
class Gate:
    """Holds up copies into the arena until it is opened."""

    opened: threading.Event
    waiting: threading.Event


@contextmanager
def slow_restores(engine: TinyEngine) -> Iterator[Gate]:
    mover = engine.worker_side._mover
    copy = mover._copy
    gate = Gate(threading.Event(), threading.Event())

    def held_up(ops: Any) -> None:
        if ops[0].target is Tier.GPU:
            gate.waiting.set()
            assert gate.opened.wait(60)
        copy(ops)

    mover._copy = held_up
    try:
        yield gate
    finally:
        gate.opened.set()
        engine.settle()
        mover._copy = copy


def add(engine: TinyEngine, prompt: list[int], params: RequestParams | None, tokens: int) -> str:
    handle = params.handle if params else engine.handle()
    engine.engine.add_request(
        handle,
        {"prompt_token_ids": prompt, "cache_salt": engine.handle()},
        engine.sampling(params, tokens),
    )
    return handle


def step_until(engine: TinyEngine, is_done: Any, limit: int = 100_000) -> dict[str, Any]:
    finished = {}
    for _ in range(limit):
        for output in engine.engine.step():
            if output.finished:
                finished[output.request_id.split("-")[0]] = output
        if is_done(finished):
            return finished
    raise AssertionError("not done")


def on_the_host(engine: TinyEngine, chunks: list[Chunk], count: int) -> list[Chunk]:
    """So many chunks that are not in the arena."""
    directory = engine.side.directory
    low = [c for c in chunks if (e := directory.find(c[0])) is not None and not e.is_on_gpu]
    assert len(low) >= count
    return low[:count]


def served(engine: TinyEngine, handle: str) -> dict[str, Any]:
    [event] = [event for event in engine.events(EventKind.SERVED) if event["handle"] == handle]
    return event


@pytest.mark.usefixtures("idle_afterwards")
def test_others_are_served_while_a_request_waits_for_its_chunks(tiers: TinyEngine) -> None:
    rng = random.Random(5)
    chunks = store_user(tiers, "tenant/waits")
    chosen = on_the_host(tiers, chunks, 3)
    prompt = [token for _, tokens in chosen for token in tokens] + random_tokens(rng, 5)
    expected = tiers.ask(prompt, max_tokens=3)
    with slow_restores(tiers) as gate:
        waits = add(tiers, prompt, tiers.injected(chosen), 3)
        other = add(tiers, random_tokens(rng, 30), None, 20)
        finished = step_until(tiers, lambda done: other in done)
        assert waits not in finished
        assert gate.waiting.is_set(), "the copy is held up, not the engine"
        gate.opened.set()
        finished = step_until(tiers, lambda done: waits in done)
    assert served(tiers, waits)["injected_tokens"] == 3 * FACT_TOKENS
    assert len(expected.token_ids) == len(finished[waits].outputs[0].token_ids)


@pytest.mark.usefixtures("idle_afterwards")
def test_a_delete_while_a_restore_is_in_flight_keeps_the_fact_out_and_zeroes_every_tier(
    tiers: TinyEngine,
) -> None:
    rng = random.Random(6)
    chunks = store_user(tiers, "tenant/deleted")
    chosen = on_the_host(tiers, chunks, 3)
    entries = [tiers.side.directory.find(key) for key, _ in chosen]
    prompt = [token for _, tokens in chosen for token in tokens] + random_tokens(rng, 5)
    expected = tiers.ask(prompt, max_tokens=3)
    with slow_restores(tiers) as gate:
        handle = add(tiers, prompt, tiers.injected(chosen), 3)
        step_until(tiers, lambda _: gate.waiting.is_set())
        places = [place for entry in entries for place in entry.places]
        forgotten = tiers.side.directory.forget(
            UserScope("tenant/deleted"), [entry.fact.fact_id for entry in entries[:1]], 9
        )
        assert chosen[0][0] in forgotten.pending
        gate.opened.set()
        finished = step_until(tiers, lambda done: handle in done)
    assert served(tiers, handle)["injected_tokens"] == 0, "the first chunk of the run is gone"
    assert list(finished[handle].outputs[0].token_ids) == expected.token_ids
    side = tiers.worker_side
    rows = {Tier.GPU: side.arena.rows, Tier.HOST: side.host.rows}
    directory = tiers.side.directory
    taken = {
        tier: {row for p in room.places.values() for row in p.rows.tolist()}
        for tier, room in directory.rooms.items()
    }
    for place in places:
        if place.entry.key in forgotten.keys:
            left = [row for row in place.rows.tolist() if row not in taken[place.tier]]
            assert not rows[place.tier][left].any(), f"{place.tier} keeps nothing of it"


@pytest.mark.usefixtures("idle_afterwards")
def test_an_abort_while_a_restore_is_in_flight_leaves_nothing_pinned(tiers: TinyEngine) -> None:
    rng = random.Random(7)
    chunks = store_user(tiers, "tenant/aborted")
    chosen = on_the_host(tiers, chunks, 3)
    prompt = [token for _, tokens in chosen for token in tokens] + random_tokens(rng, 5)
    with slow_restores(tiers) as gate:
        params = tiers.injected(chosen)
        add(tiers, prompt, params, 3)
        step_until(tiers, lambda _: gate.waiting.is_set())
        tiers.engine.abort_request([params.handle])
        tiers.engine.step()
        gate.opened.set()
        tiers.settle()
    assert tiers.side.directory.num_pinned == 0
    assert tiers.ask(prompt, tiers.injected(chosen)).cached == 3 * FACT_TOKENS


@pytest.mark.usefixtures("idle_afterwards")
def test_a_restore_that_fails_leaves_its_request_to_be_prefilled(tiers: TinyEngine) -> None:
    rng = random.Random(8)
    chunks = store_user(tiers, "tenant/fails")
    chosen = on_the_host(tiers, chunks, 3)
    prompt = [token for _, tokens in chosen for token in tokens] + random_tokens(rng, 5)
    expected = tiers.ask(prompt)
    mover = tiers.worker_side._mover
    copy = mover._copy

    def fails(ops: Any) -> None:
        if ops[0].target is Tier.GPU:
            raise OSError("no")
        copy(ops)

    mover._copy = fails
    try:
        answer = tiers.ask(prompt, tiers.injected(chosen))
    finally:
        mover._copy = copy
    assert answer.cached == 0
    assert answer.token_ids == expected.token_ids
    assert not any(tiers.side.directory.find(key) for key, _ in chosen), "of no use any more"


@pytest.mark.usefixtures("idle_afterwards")
def test_a_request_larger_than_the_arena_is_injected_as_far_as_the_arena_goes(
    tiers: TinyEngine,
) -> None:
    chunks = store_user(tiers, "tenant/large")
    assert NUM_FACTS * FACT_TOKENS > ARENA_TOKENS
    in_arena = [c for c in chunks if tiers.side.directory.get(c[0]) is not None]
    others = [c for c in chunks if c not in in_arena]
    prompt = [token for _, tokens in in_arena + others for token in tokens] + [3, 4, 5]
    answer = tiers.ask(prompt, tiers.injected(in_arena + others))
    assert answer.cached == len(in_arena) * FACT_TOKENS


@pytest.mark.usefixtures("idle_afterwards")
def test_forgetting_a_user_leaves_only_zeros_in_arena_and_host(tiers: TinyEngine) -> None:
    directory = tiers.side.directory
    for scope in {key.rpartition("/")[0] for key in list(directory._entries)}:
        entries = directory.of_scope(UserScope(scope))
        on_host = sum(entry.host is not None for entry in entries)
        facts = [entry.fact.fact_id for entry in entries]
        tiers.forget(facts, scope=scope, version=99)
        tiers.settle()
        event = tiers.events(EventKind.FORGOTTEN)[-1]
        assert (event["num_by_tier"]["host"], event["num_pending"]) == (on_host, 0)
    assert directory.num_published == 0
    assert tiers.llm.collective_rpc("inferscale_arena_is_zero") == [True]


class Disk:
    """What the worker service does for a user: opens the tier and has the records compared."""

    SECRET = StoreSecret.from_token("token")
    KEY = DiskKey(1, bytes(32))

    def __init__(self, engine: TinyEngine, folder: Path) -> None:
        self.engine = engine
        store = open_disk_store(folder, self.SECRET, max_bytes=64 << 20, layout="test")
        engine.worker_side.use_disk(store, self.SECRET.unseal)

    def adopt(self, scope: str, wanted: list[ChunkKey]) -> int:
        """Chunks that are on disk then."""
        command = Adopt(
            UserScope(scope), self.SECRET.seal(UserScope(scope), self.KEY), tuple(wanted), 1
        )
        params = RequestParams(self.engine.handle(), adopt=command)
        self.engine.ask([3, 4], params, max_tokens=1)
        self.engine.settle()
        [event] = [e for e in self.engine.events(EventKind.ADOPTED) if e["handle"] == params.handle]
        return int(event["num_chunks"])


@pytest.mark.parametrize("host_tokens", [0, 400], ids=["no-host-tier", "small-host-tier"])
def test_a_restarted_engine_serves_from_disk_what_the_user_still_should_have(
    model_folder: Path, tmp_path: Path, asked: list[list[Answer]], host_tokens: int
) -> None:
    """The first engine writes through; the second finds the records, and takes up none before they
    are compared. One fact is not wanted any more."""
    settings = {
        "host_bytes": host_tokens * row_bytes(DTYPE),
        "disk_dir": str(tmp_path),
        "disk_bytes": 64 << 20,
    }
    engine = tiered(model_folder, **settings)
    disk = Disk(engine, tmp_path / "rank")
    assert disk.adopt("tenant/user", []) == 0
    chunks = store_user(engine)
    engine.settle()
    entries = [engine.side.directory.find(key) for key, _ in chunks]
    assert all(entry is not None and entry.disk is not None for entry in entries)
    assert Tier.DISK in tiers_of(engine, chunks)
    for number, expected in enumerate(asked[:3]):
        answers = chat(engine, chunks, number)
        assert [answer.logprobs for answer in answers] == [one.logprobs for one in expected]
    engine.assert_idle()
    engine.close()

    engine = tiered(model_folder, **settings)
    disk = Disk(engine, tmp_path / "rank")
    first = chunks[:1]
    cold = RequestParams(engine.handle(), (Span(first[0][0], FACT_TOKENS),))
    assert engine.ask(first[0][1] + [5], cold).cached == 0, "nothing is served before the compare"
    assert disk.adopt("tenant/user", [key for key, _ in chunks]) == NUM_FACTS
    published = [e for e in engine.events(EventKind.PUBLISHED) if e["tier"] == "disk"]
    assert len(published) == NUM_FACTS
    for number, expected in enumerate(asked):
        answers = chat(engine, chunks, number)
        assert [answer.cached for answer in answers] == [NUM_ASKED * FACT_TOKENS] * 2
        assert [answer.logprobs for answer in answers] == [one.logprobs for one in expected]
    forgotten = engine.side.directory.find(chunks[3][0])
    engine.forget(["3"], scope="tenant/user", version=2)
    engine.assert_idle()
    event = engine.events(EventKind.FORGOTTEN)[-1]
    assert event["num_by_tier"]["disk"] == event["num_chunks"] >= 1
    assert event["num_pending"] == 0
    names = {path.name for path in (tmp_path / "rank").rglob("*") if path.is_file()}
    assert Disk.SECRET.name(forgotten.key) not in {name.partition(".")[0] for name in names}
    assert Disk.SECRET.name(chunks[0][0]) in {name.partition(".")[0] for name in names}
    engine.close()
