"""The scheduler side under hostile requests: it never raises, no copy meets a wrong row, and
nothing is left when all requests have ended.

An engine without a model drives it as vLLM's scheduler does: steps are executed up to two behind,
requests are chunked, preempted and aborted, and one step may hold many captures of one key. A row
of the arena is the name of what was written there.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.kv.rows import LayerShape
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Span
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.metadata import StepDone, StepMetadata
from inferscale_core.vllm_connector.params import Capture, Forget, RequestParams
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide
from inferscale_core.vllm_connector.sinks import MemorySink

BLOCK, NUM_STEPS, OUTPUT_TOKENS = 4, 500, 3
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
            num_pages=numbers.choice([4, 7, 10]),
            event_endpoint=None,
        )
        self.side = SchedulerSide(config, self.sink)
        names = [f"tenant/{user}/{number}" for user in "ab" for number in range(4)]
        self.length_by_key = {ChunkKey(name): numbers.randint(1, 9) for name in names}
        self.length_by_key[HEADER] = 3
        self.rows: dict[int, tuple[ChunkKey, int, int]] = {}
        self.asked: dict[str, Asked] = {}
        self.waiting: list[Asked] = []
        self.running: list[Asked] = []
        self.in_flight: deque[tuple[StepMetadata, dict[str, list[int]]]] = deque()
        self.num_blocks = 0
        self.num_copied = {"inject": 0, "capture": 0}
        self.version = 0

    def ask(self) -> None:
        params, num_tokens = self._params(f"r{len(self.asked)}")
        wire = params.to_wire()
        if self.numbers.random() < 0.05:
            part = self.numbers.choice([name for name in wire["inferscale"] if name != "handle"])
            wire["inferscale"][part] = self.numbers.choice(NONSENSE)
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
        for row in step.zero.tolist():
            self.rows.pop(row, None)
        for copy in step.inject:
            spans = self.asked[copy.handle].params.spans
            layout = [(span.key, offset) for span in spans for offset in range(span.num_tokens)]
            for row, slot, origin, position in self._tokens(copy, "inject"):
                assert self.rows[row] == (*layout[position], origin)
                assert slot == tables[copy.handle][position // BLOCK] * BLOCK + position % BLOCK
        for copy in step.capture:
            capture = self.asked[copy.handle].params.capture
            assert capture is not None
            for row, slot, origin, position in self._tokens(copy, "capture"):
                assert row not in self.rows, "written over what was not zeroed"
                assert slot == tables[copy.handle][position // BLOCK] * BLOCK + position % BLOCK
                self.rows[row] = (capture.key, position - capture.start, origin)
        done = StepDone([step.step_id]) if step.step_id else None
        self.side.step_done(SimpleNamespace(kv_connector_worker_meta=done))  # type: ignore[arg-type]

    def num_events(self, kind: EventKind, **fields: Any) -> int:
        return sum(
            event.kind is kind and fields.items() <= event.fields.items()
            for event in self.sink.events
        )

    def _params(self, handle: str) -> tuple[RequestParams, int]:
        """Mostly as a worker asks; spans of a wrong length, twice the same, captures out of place
        and plans as long as the prompt among them."""
        numbers, keys = self.numbers, list(self.length_by_key)
        spans = [
            Span(key, self.length_by_key[key] + (numbers.random() < 0.05))
            for key in numbers.sample(keys, numbers.randint(0, 4))
        ]
        if spans and numbers.random() < 0.05:
            spans.append(spans[0])
        num_spans = sum(span.num_tokens for span in spans)
        num_tokens = max(1, num_spans + numbers.randint(numbers.random() > 0.05, 12))
        capture = forget = None
        if numbers.random() < 0.6:
            capture = self._capture(numbers.choice(keys), spans, num_spans)
            end = capture.start + capture.num_tokens
            num_tokens = max(num_tokens, end + numbers.randint(0, 3) - (numbers.random() < 0.05))
        if numbers.random() < 0.15:
            self.version += numbers.randint(0, 1)
            facts = tuple(FactId(str(numbers.randint(0, 3))) for _ in range(2))
            scope = UserScope(f"tenant/{numbers.choice('ab')}")
            forget = Forget(scope, facts, self.version)
        return RequestParams(handle, tuple(spans), capture, forget), num_tokens

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
    while engine.in_flight or engine.side.has_rows_to_zero:
        if not engine.in_flight:
            engine.schedule()
        engine.execute()
    side = engine.side
    assert (side.num_requests, side.num_steps_in_flight, side.has_rows_to_zero) == (0, 0, False)
    assert (side.directory.num_pinned, side.directory.num_reserved) == (0, 0)
    held = {row for entry in side.directory._entries.values() for row in entry.slots.tolist()}
    assert set(engine.rows) == held, "what is gone is zeroed, and what is held was written"
    num_pending = engine.num_events(EventKind.DROPPED, pending=True)
    assert engine.num_events(EventKind.ZEROED) == num_pending
    assert min(*engine.num_copied.values(), engine.num_events(EventKind.REJECTED)) > 0
