"""The scheduler side under hostile requests: it never raises, no copy meets a wrong row, and
nothing is left when all requests have ended.

An engine without a model drives it as vLLM's scheduler does: steps are executed up to two behind,
requests are chunked, preempted and aborted, and one step may hold many captures of one key. A row
of a tier is the name of what was written there. Two ranks end what moves between tiers late, each
at its own time, and sometimes fail.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.disk import DiskRecord
from inferscale_core.kv.rows import LayerShape
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.metadata import (
    AdmitRecords,
    MoveRows,
    OpResult,
    RemoveRecords,
    StepDone,
    StepMetadata,
    TierOp,
    ZeroHostRows,
)
from inferscale_core.vllm_connector.params import Adopt, Capture, Forget, RequestParams
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide
from inferscale_core.vllm_connector.sinks import MemorySink
from inferscale_core.vllm_connector.tier_config import TierConfig

BLOCK, NUM_STEPS, OUTPUT_TOKENS, NUM_RANKS = 4, 500, 3, 2
HEADER = ChunkKey("shared/header/h")
NONSENSE: tuple[Any, ...] = (None, -1, "x", [], {}, "a 0", "\n", {"key": "no scope", "start": 0})


@dataclass
class Asked:
    """What vLLM's Request shows of itself, and where the engine has got with it."""

    request_id: str
    params: RequestParams
    kv_transfer_params: dict[str, Any]
    num_prompt_tokens: int
    lora_request: None = None
    num_computed: int = 0
    block_ids: list[int] = field(default_factory=list)
    has_run: bool = False

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + OUTPUT_TOKENS


class TierRank:
    """Rows and records of one rank. What it was told to do it does later, in the order of a mover:
    zeroing first, and what concerns the disk in order."""

    def __init__(self, numbers: random.Random) -> None:
        self.numbers = numbers
        self.rows: dict[Tier, dict[int, Any]] = {Tier.GPU: {}, Tier.HOST: {}}
        self.disk: dict[ChunkKey, tuple[DiskRecord, list[Any]]] = {}
        self.open: list[TierOp] = []
        self.num_moves: Counter[tuple[Tier, Tier]] = Counter()

    def end_some(self) -> dict[int, list[OpResult]]:
        results: dict[int, list[OpResult]] = {}
        while self.open and self.numbers.random() < 0.6:
            op = self.open.pop(0)
            results[op.op_id] = [self._execute(op)]
        return results

    def holds(self, tier: Tier) -> set[Any]:
        return set(self.disk) if tier is Tier.DISK else set(self.rows[tier])

    def _execute(self, op: TierOp) -> OpResult:
        match op:
            case ZeroHostRows():
                for row in op.rows.tolist():
                    self.rows[Tier.HOST].pop(row, None)
            case RemoveRecords():
                for key in op.keys:
                    self.disk.pop(key, None)
            case AdmitRecords():
                for key in [key for key in self.disk if key.startswith(op.scope)]:
                    if key not in op.wanted:
                        del self.disk[key]
                here = (self.disk[key][0] for key in op.wanted if key in self.disk)
                return OpResult(succeeded=True, admitted=tuple(here))
            case MoveRows():
                return self._move(op)
        return OpResult(succeeded=True)

    def _move(self, op: MoveRows) -> OpResult:
        if self.numbers.random() < 0.1:
            if op.source is Tier.DISK:
                assert op.record is not None
                self.disk.pop(op.record.key, None)
            return OpResult(succeeded=False)
        self.num_moves[op.source, op.target] += 1
        content = self._read(op)
        if content is None:
            return OpResult(succeeded=False)
        if op.target is Tier.DISK:
            assert op.record is not None
            self.disk[op.record.key] = (op.record, content)
            return OpResult(succeeded=True)
        assert op.target_rows is not None
        there = self.rows[op.target]
        for row, token in zip(op.target_rows.tolist(), content, strict=True):
            assert row not in there, "written over what was not zeroed"
            there[row] = token
        return OpResult(succeeded=True)

    def _read(self, op: MoveRows) -> list[Any] | None:
        """None: a comparison removed the record before it was known to be on disk."""
        if op.source is Tier.DISK:
            assert op.record is not None
            record, content = self.disk.get(op.record.key, (None, None))
            assert record in (None, op.record)
            return content
        assert op.source_rows is not None
        return [self.rows[op.source][row] for row in op.source_rows.tolist()]


class Engine:
    def __init__(self, numbers: random.Random) -> None:
        self.numbers = numbers
        self.sink = MemorySink()
        config = ConnectorConfig(
            layer_names=("layer",),
            layers=(LayerShape(2, 8),),
            group_of_layer=(0,),
            windows=(None,),
            dtype=torch.float32,
            block_size=BLOCK,
            page_tokens=3,
            num_pages=numbers.choice([4, 6, 8]),
            event_endpoint=None,
        )
        tiers = TierConfig(
            num_host_pages=numbers.choice([0, 20, 30]),
            num_disk_pages=numbers.choice([0, 8, 40]),
            tenant_share=numbers.choice([0.6, 1.0]),
            num_ranks=NUM_RANKS,
        )
        self.side = SchedulerSide(config, self.sink, tiers)
        self.ranks = [TierRank(numbers) for _ in range(NUM_RANKS)]
        names = [f"tenant/{user}/{number}" for user in "ab" for number in range(7)]
        self.length_by_key = {ChunkKey(name): numbers.randint(1, 9) for name in names}
        self.length_by_key[HEADER] = 3
        if tiers.num_disk_pages:
            self._leave_records()
        self.asked: dict[str, Asked] = {}
        self.waiting: list[Asked] = []
        self.running: list[Asked] = []
        self.in_flight: deque[tuple[StepMetadata, dict[str, list[int]]]] = deque()
        self.num_blocks = 0
        self.num_copied = {"inject": 0, "capture": 0}
        self.num_waits = 0
        self.version = 0

    def _leave_records(self) -> None:
        """Of each user some from before a restart, on every rank."""
        for key in (ChunkKey(f"tenant/{user}/{number}") for user in "ab" for number in range(2)):
            length, origin = self.length_by_key[key], self.numbers.randint(0, 9)
            record = DiskRecord(key, FactRef(FactId(key[-1]), 1), length, origin, ())
            rows = [(key, offset, origin + offset) for offset in range(length)]
            for rank in self.ranks:
                rank.disk[key] = (record, rows)

    def ask(self) -> None:
        params, num_tokens = self._params(f"r{len(self.asked)}")
        wire = params.to_wire()
        if self.numbers.random() < 0.05:
            body = msgspec.msgpack.decode(wire["inferscale"])
            part = self.numbers.choice([name for name in body if name != "handle"] or ["capture"])
            body[part] = self.numbers.choice(NONSENSE)
            wire["inferscale"] = msgspec.msgpack.encode(body)
        request = Asked(params.handle, params, wire, num_tokens)
        self.asked[params.handle] = request
        self.side.new_request(request)  # type: ignore[arg-type]
        self.waiting.append(request)

    def abort_some(self) -> None:
        for requests in (self.waiting, self.running):
            for request in list(requests):
                if self.numbers.random() < 0.05:
                    requests.remove(request)
                    self.side.finished(request)  # type: ignore[arg-type]

    def schedule(self) -> None:
        """One step. Nobody is admitted in a step that preempts."""
        scheduled: dict[str, int] = {}
        cached, new, resumed = [], [], set()
        is_preempting = False
        for request in list(self.running):
            if not is_preempting and self.numbers.random() < 0.05:
                is_preempting = True
                self.running.remove(request)
                self.waiting.insert(0, request)
                request.num_computed, request.block_ids = 0, []
                continue
            count = min(self.numbers.randint(0, 8), request.num_tokens - request.num_computed)
            if count:
                added = self._extend(request, count)
                cached.append((request, (added,) if added else None, request.num_computed))
                scheduled[request.request_id] = count
        for request in [] if is_preempting else list(self.waiting):
            count = self._admit(request)
            if not count:
                continue
            scheduled[request.request_id] = count
            blocks = (list(request.block_ids),)
            if request.has_run:
                resumed.add(request.request_id)
                cached.append((request, blocks, request.num_computed))
            else:
                new.append(
                    SimpleNamespace(
                        req_id=request.request_id,
                        block_ids=blocks,
                        num_computed_tokens=request.num_computed,
                    )
                )
            request.has_run = True
        output: Any = SimpleNamespace(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[request.request_id for request, _, _ in cached],
                new_block_ids=[blocks for _, blocks, _ in cached],
                num_computed_tokens=[computed for _, _, computed in cached],
                resumed_req_ids=resumed,
            ),
            num_scheduled_tokens=scheduled,
        )
        tables = {request.request_id: list(request.block_ids) for request in self.running}
        self.in_flight.append((self.side.build_step(output), tables))
        self._compute(scheduled)
        self.side.directory.check_conservation()

    def execute(self) -> None:
        """What the ranks do with the oldest step."""
        step, tables = self.in_flight.popleft()
        for rank in self.ranks:
            for row in step.zero.tolist():
                rank.rows[Tier.GPU].pop(row, None)
        for copy in step.inject:
            spans = self.asked[copy.handle].params.spans
            layout = [(span.key, offset) for span in spans for offset in range(span.num_tokens)]
            for row, slot, origin, position in self._tokens(copy, "inject"):
                for rank in self.ranks:
                    assert rank.rows[Tier.GPU][row] == (*layout[position], origin)
                assert slot == tables[copy.handle][position // BLOCK] * BLOCK + position % BLOCK
        for copy in step.capture:
            capture = self.asked[copy.handle].params.capture
            assert capture is not None
            for row, slot, origin, position in self._tokens(copy, "capture"):
                assert slot == tables[copy.handle][position // BLOCK] * BLOCK + position % BLOCK
                for rank in self.ranks:
                    arena = rank.rows[Tier.GPU]
                    assert row not in arena, "written over what was not zeroed"
                    arena[row] = (capture.key, position - capture.start, origin)
        done: Any = None
        for rank in self.ranks:
            rank.open.extend(step.tier_ops)
            report = StepDone([step.step_id] if step.step_id else [], {}, rank.end_some())
            if report.step_ids or report.tier_results:
                done = done.aggregate(report) if done else report
        self.side.step_done(SimpleNamespace(kv_connector_worker_meta=done))  # type: ignore[arg-type]

    def num_events(self, kind: EventKind, **fields: Any) -> int:
        return sum(
            event.kind is kind and fields.items() <= event.fields.items()
            for event in self.sink.events
        )

    def _params(self, handle: str) -> tuple[RequestParams, int]:
        """Mostly as a worker asks; chunks of two users, spans of a wrong length, twice the same,
        captures out of place and plans as long as the prompt among them."""
        numbers, keys = self.numbers, list(self.length_by_key)
        if numbers.random() > 0.1:
            user = numbers.choice("ab")
            keys = [key for key in keys if key.startswith(f"tenant/{user}/")]
        chosen = numbers.sample(keys, numbers.randint(0, 4))
        if numbers.random() < 0.3:
            chosen = [HEADER, *chosen]
        elif numbers.random() < 0.1:
            chosen, keys = [], [HEADER]
        spans = [Span(key, self.length_by_key[key] + (numbers.random() < 0.05)) for key in chosen]
        if spans and numbers.random() < 0.05:
            spans.append(spans[0])
        num_spans = sum(span.num_tokens for span in spans)
        num_tokens = max(1, num_spans + numbers.randint(numbers.random() > 0.05, 12))
        capture = forget = adopt = None
        if numbers.random() < 0.6:
            capture = self._capture(numbers.choice(keys), spans, num_spans)
            end = capture.start + capture.num_tokens
            num_tokens = max(num_tokens, end + numbers.randint(0, 3) - (numbers.random() < 0.05))
        if numbers.random() < 0.15:
            self.version += numbers.randint(0, 1)
            facts = tuple(FactId(str(numbers.randint(0, 6))) for _ in range(2))
            scope = UserScope(f"tenant/{numbers.choice('ab')}")
            forget = Forget(scope, facts, self.version)
        if numbers.random() < 0.05:
            adopt = self._adopt(UserScope(f"tenant/{numbers.choice('ab')}"))
        return RequestParams(handle, tuple(spans), capture, forget, adopt), num_tokens

    def _adopt(self, scope: UserScope) -> Adopt:
        """Mostly of all that the user may have."""
        keys = [key for key in self.length_by_key if key.startswith(scope)]
        wanted = keys if self.numbers.random() < 0.7 else self.numbers.sample(keys, 3)
        return Adopt(scope, "sealed", tuple(wanted), self.version)

    def _capture(self, key: ChunkKey, spans: list[Span], num_spans: int) -> Capture:
        start = num_spans + self.numbers.randint(0, 3) - (self.numbers.random() < 0.05)
        seen = tuple(span.key for span in spans if span.key not in (HEADER, key))
        is_header = key == HEADER
        return Capture(
            key=key,
            start=max(0, start),
            num_tokens=self.length_by_key[key],
            prefix_keys=() if is_header else seen,
            fact=None if is_header else FactRef(FactId(key[-1]), 1),
            planned_version=max(0, self.version - self.numbers.choice([0, 0, 0, 1, 5])),
        )

    def _admit(self, request: Asked) -> int:
        """Tokens that the request computes in this step; 0 when it goes on waiting."""
        numbers, last = self.numbers, request.num_prompt_tokens - 1
        native = BLOCK * numbers.randint(0, last // BLOCK) if numbers.random() < 0.3 else 0
        injected = self.side.matched_tokens(request, native)  # type: ignore[arg-type]
        if injected is None:
            self.num_waits += 1
            return 0
        assert native + injected <= last, "one token is left to compute"
        if numbers.random() < 0.4:
            return 0
        request.num_computed = native + injected
        count = min(numbers.randint(1, 10), request.num_prompt_tokens - request.num_computed)
        self._extend(request, count)
        table = (list(request.block_ids),)
        blocks: Any = SimpleNamespace(get_block_ids=lambda: table)
        self.side.allocated(request, blocks, injected)  # type: ignore[arg-type]
        self.waiting.remove(request)
        self.running.append(request)
        return count

    def _extend(self, request: Asked, count: int) -> list[int]:
        num_needed = -(-(request.num_computed + count) // BLOCK) - len(request.block_ids)
        added = [self.num_blocks + number for number in range(1, 1 + max(0, num_needed))]
        self.num_blocks += len(added)
        request.block_ids += added
        return added

    def _compute(self, scheduled: dict[str, int]) -> None:
        for request in list(self.running):
            request.num_computed += scheduled.get(request.request_id, 0)
            if request.num_computed == request.num_tokens:
                self.running.remove(request)
                self.side.finished(request)  # type: ignore[arg-type]

    def _tokens(self, copy: Any, kind: str) -> list[tuple[int, ...]]:
        self.num_copied[kind] += len(copy.positions)
        columns = (copy.arena_slots, copy.cache_slots[0], copy.origins, copy.positions)
        return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_asked_no_copy_meets_a_wrong_row_and_nothing_is_left(seed: int) -> None:
    run(seed)


def run(seed: int) -> Engine:
    """The ended engine, checked."""
    numbers = random.Random(seed)
    engine = Engine(numbers)
    for _ in range(NUM_STEPS):
        for _ in range(numbers.randint(0, 3)):
            engine.ask()
        engine.abort_some()
        engine.schedule()
        while len(engine.in_flight) > numbers.randint(0, 2):
            engine.execute()
    while engine.waiting or engine.running:
        engine.abort_some()
        engine.schedule()
        engine.execute()
    while engine.in_flight or engine.side.has_work:
        if not engine.in_flight:
            engine.schedule()
        engine.execute()
    side = engine.side
    assert (side.num_requests, side.num_steps_in_flight, side.has_work) == (0, 0, False)
    assert (side.directory.num_pinned, side.directory.num_reserved) == (0, 0)
    assert side.tiering.num_waiting == 0
    for rank in engine.ranks:
        for tier in side.directory.rooms:
            assert rank.holds(tier) == held_by(engine, tier), f"{tier}: gone is gone, held is there"
    pending = [
        (event.fields["key"], tier)
        for event in engine.sink.events
        if event.kind is EventKind.DROPPED
        for tier in event.fields["pending"]
    ]
    zeroed = [
        (event.fields["key"], event.fields["tier"])
        for event in engine.sink.events
        if event.kind is EventKind.ZEROED
    ]
    assert sorted(zeroed) == sorted(pending)
    forgets = sum(request.params.forget is not None for request in engine.asked.values())
    assert engine.num_events(EventKind.FORGOTTEN) + engine.num_events(EventKind.REJECTED) >= forgets
    assert min(*engine.num_copied.values(), engine.num_events(EventKind.REJECTED)) > 0
    asked = engine.num_events(EventKind.ADOPTED) + engine.num_events(EventKind.REJECTED)
    assert asked >= sum(request.params.adopt is not None for request in engine.asked.values())
    return engine


def test_requests_wait_for_copies_and_chunks_take_every_way_between_the_tiers() -> None:
    """Which of them a load takes is chance; over a few loads each is taken."""
    engines = [run(seed) for seed in range(100, 106)]
    assert sum(engine.num_waits for engine in engines) > 100
    ways = sum((engine.ranks[0].num_moves for engine in engines), Counter())
    assert ways.keys() == {
        (Tier.GPU, Tier.HOST),
        (Tier.GPU, Tier.DISK),
        (Tier.HOST, Tier.DISK),
        (Tier.HOST, Tier.GPU),
        (Tier.DISK, Tier.GPU),
    }
    assert sum(engine.num_events(EventKind.PUBLISHED, tier="disk") for engine in engines) > 0


def held_by(engine: Engine, tier: Tier) -> set[Any]:
    places = engine.side.directory.rooms[tier].places.values()
    if tier is Tier.DISK:
        return {place.entry.key for place in places}
    return {row for place in places for row in place.rows.tolist()}
