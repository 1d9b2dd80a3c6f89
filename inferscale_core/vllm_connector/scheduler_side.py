"""The half of the connector that decides: what is injected, captured, forgotten and evicted.

It runs inside the engine's scheduler, so nothing here may raise because of a request: malformed
parameters turn into plain prefill and a `rejected` event.

One step:

    on_new_request        parse; carry out `forget`
    get_num_new_matched…  count the leading run of resident spans        (no side effects)
    update_state_after…   pin that run, note what is to be copied
    build_connector_meta  zero + inject + capture of this step
    update_connector_out… unpin, publish, acknowledge                    (the ranks are done)
    request_finished      forget the request

Source: vLLM 0.26 and 0.32, v1/core/sched/scheduler.py and distributed/kv_transfer/…/v1/base.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.directory import ChunkDirectory, Entry, Forgotten
from inferscale_core.kv.pages import PagePool
from inferscale_core.memory.canonical import scope_of
from inferscale_core.vllm_connector.blocks import BlockTables, token_copy
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.metadata import Copy, StepDone, StepMetadata
from inferscale_core.vllm_connector.params import (
    Capture,
    MalformedParams,
    RequestParams,
    params_from_wire,
)
from inferscale_core.vllm_connector.sinks import EventLog, EventSink

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request


@dataclass(slots=True)
class RequestState:
    """covered: prompt tokens that were native hits or injected when it was last scheduled. run: the
    leading resident spans, as of the directory's `run_generation`, holding `run_tokens` tokens."""

    params: RequestParams
    covered: int = 0
    num_injected: int = 0
    num_span_tokens: int = 0
    capture_sent: bool = False
    run: list[Entry] = field(default_factory=list)
    run_tokens: int = 0
    run_generation: int = -1


@dataclass(slots=True)
class StepRecord:
    """What an executed step gives back: readers, written chunks, injections, forgets to confirm."""

    pinned: list[Entry] = field(default_factory=list)
    captured: list[tuple[str, ChunkKey]] = field(default_factory=list)
    injected: list[str] = field(default_factory=list)
    forgotten: list[tuple[str, Forgotten]] = field(default_factory=list)
    zeroed: list[ChunkKey] = field(default_factory=list)


class SchedulerSide:
    """Owns the engine's chunk directory. Called by the scheduler's thread only."""

    def __init__(self, config: ConnectorConfig, sink: EventSink) -> None:
        self._config = config
        self.sink = sink
        self._events = EventLog(sink)
        self.directory = ChunkDirectory(PagePool(config.num_pages, config.page_tokens))
        self._requests: dict[str, RequestState] = {}
        self._blocks = BlockTables()
        self._pending = StepRecord()
        self._copies: list[Copy] = []
        self._in_flight: dict[int, StepRecord] = {}
        self._next_step = 0

    def new_request(self, request: Request) -> None:
        """Parse what the request asks of us, and carry out its command."""
        params = self._parse(request)
        if params is None:
            return
        state = RequestState(params, num_span_tokens=sum(s.num_tokens for s in params.spans))
        self._requests[request.request_id] = state
        if params.forget is not None:
            command = params.forget
            forgotten = self.directory.forget(command.scope, command.fact_ids, command.version)
            for key in forgotten.keys:
                is_pending = key in forgotten.pending
                self._events.emit(
                    EventKind.DROPPED, key=key, reason="forgotten", pending=is_pending
                )
            self._pending.forgotten.append((params.handle, forgotten))
        if params.capture is not None:
            self._blocks.follow(request.request_id)

    def matched_tokens(self, request: Request, num_computed_tokens: int) -> int:
        """Tokens beyond `num_computed_tokens` that chunks can supply. No side effects."""
        state = self._requests.get(request.request_id)
        if state is None:
            return 0
        self._find_run(state)
        return max(0, state.run_tokens - num_computed_tokens)

    def allocated(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """Blocks exist now: pin the chunks and note the copy."""
        state = self._requests.get(request.request_id)
        if state is None:
            return
        state.num_injected = num_external_tokens
        if num_external_tokens > 0:
            self._inject(state, blocks, num_external_tokens)

    def build_step(self, output: SchedulerOutput) -> StepMetadata:
        """Everything the ranks do in this step; remembers what to give back when it is done."""
        self._blocks.advance(output)
        self._report_admitted()
        captures = self._captures(output)
        zero = self.directory.drain_to_zero()
        for key in self.directory.drain_evicted():
            self._events.emit(EventKind.DROPPED, key=key, reason="evicted", pending=False)
        record, self._pending = self._pending, StepRecord()
        copies, self._copies = self._copies, []
        if not (len(zero) or copies or captures or record.forgotten):
            return StepMetadata()
        self._next_step += 1
        self._in_flight[self._next_step] = record
        return StepMetadata(self._next_step, zero, copies, captures)

    def step_done(self, output: KVConnectorOutput) -> None:
        """Steps were executed by every rank: end readers, publish, acknowledge."""
        done = output.kv_connector_worker_meta
        if not isinstance(done, StepDone):
            return
        for step_id in done.step_ids:
            record = self._in_flight.pop(step_id, None)
            if record is not None:
                self._finish_step(record, done.inject_ms.get(step_id, 0.0))

    def finished(self, request: Request) -> dict[str, Any] | None:
        """The request ended or was aborted. Work already sent to the ranks goes on."""
        state = self._requests.pop(request.request_id, None)
        self._blocks.drop(request.request_id)
        if state is None:
            return None
        capture = state.params.capture
        if capture is not None and not state.capture_sent:
            self._refuse(state.params, capture, "aborted")
        return None

    @property
    def has_rows_to_zero(self) -> bool:
        """Whether a step is needed even if no request asks for one."""
        return self.directory.has_rows_to_zero

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    @property
    def num_steps_in_flight(self) -> int:
        return len(self._in_flight)

    def _parse(self, request: Request) -> RequestParams | None:
        try:
            params = params_from_wire(request.kv_transfer_params)
            if params is None:
                return None
            self._check(params, request)
        except MalformedParams as problem:
            self._reject(request, str(problem))
            return None
        return params

    @staticmethod
    def _check(params: RequestParams, request: Request) -> None:
        num_spans = sum(span.num_tokens for span in params.spans)
        if num_spans >= request.num_prompt_tokens:
            raise MalformedParams("spans: as long as the prompt or longer")
        if len({span.key for span in params.spans}) != len(params.spans):
            raise MalformedParams("spans: a key is named twice")
        if request.lora_request is not None:
            raise MalformedParams("a request with an adapter takes no chunks and gives none")
        capture = params.capture
        if capture is None:
            return
        if capture.start + capture.num_tokens > request.num_prompt_tokens:
            raise MalformedParams("capture: reaches beyond the prompt")
        if capture.start < num_spans:
            raise MalformedParams("capture: starts inside the spans")

    def _reject(self, request: Request, reason: str) -> None:
        wire = request.kv_transfer_params
        body = wire.get("inferscale") if isinstance(wire, dict) else None
        handle = body.get("handle") if isinstance(body, dict) else None
        self._events.emit(
            EventKind.REJECTED,
            handle=handle if isinstance(handle, str) else "",
            reason=reason,
        )

    def _inject(self, state: RequestState, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """The injection covers the end of the resident run; the engine's own hit what is before."""
        self._find_run(state)
        run, end = state.run, state.run_tokens
        start = end - num_external_tokens
        assert start >= 0, "nothing can be dropped between match and allocation"
        self._copies.append(
            token_copy(
                state.params.handle,
                run,
                blocks.get_block_ids(),
                self._config.block_size,
                range(start, end),
            )
        )
        self.directory.pin(run)
        self.directory.stats.hits += len(run)
        self.directory.stats.misses += len(state.params.spans) - len(run)
        self._pending.pinned.extend(run)
        self._pending.injected.append(state.params.handle)

    def _find_run(self, state: RequestState) -> None:
        """Bring the request's run up to date; a waiting request is asked in every step."""
        if state.run_generation != self.directory.generation:
            state.run = self.directory.resident_run(state.params.spans)
            state.run_tokens = sum(entry.num_tokens for entry in state.run)
            state.run_generation = self.directory.generation

    def _report_admitted(self) -> None:
        for request_id, num_covered in self._blocks.admitted.items():
            state = self._requests.get(request_id)
            if state is None:
                continue
            state.covered = num_covered
            self._events.emit(
                EventKind.SERVED,
                handle=state.params.handle,
                native_tokens=num_covered - state.num_injected,
                injected_tokens=state.num_injected,
            )

    def _captures(self, output: SchedulerOutput) -> list[Copy]:
        """Captures of requests whose captured tokens are all computed once this step has run."""
        copies = []
        for request_id in self._blocks.scheduled_to_reach(self._capture_ends()):
            state = self._requests[request_id]
            capture = state.params.capture
            assert capture is not None
            state.capture_sent = True
            entry = self._reserve(request_id, state, capture)
            if entry is None:
                continue
            block_ids = self._blocks.block_ids(request_id)
            copies.append(
                token_copy(
                    state.params.handle,
                    [entry],
                    block_ids,
                    self._config.block_size,
                    range(capture.start, capture.start + capture.num_tokens),
                    first=capture.start,
                )
            )
            self._pending.captured.append((state.params.handle, capture.key))
        return copies

    def _capture_ends(self) -> dict[str, int]:
        return {
            request_id: state.params.capture.start + state.params.capture.num_tokens
            for request_id, state in self._requests.items()
            if state.params.capture is not None and not state.capture_sent
        }

    def _reserve(self, request_id: str, state: RequestState, capture: Capture) -> Entry | None:
        reason = self._refusal(request_id, state, capture)
        if reason is None:
            entry = self.directory.reserve(
                capture.key,
                capture.num_tokens,
                origin=capture.start,
                fact=capture.fact,
                prefix_keys=capture.prefix_keys,
            )
            if entry is not None:
                return entry
            reason = "arena_full"
        self._refuse(state.params, capture, reason)
        return None

    def _refusal(self, request_id: str, state: RequestState, capture: Capture) -> str | None:
        if self.directory.is_fenced(scope_of(capture.key), capture.planned_version):
            return "fenced"
        if state.covered < state.num_span_tokens:
            return "missing_prefix"
        if not all(self.directory.get(key) for key in capture.prefix_keys):
            return "missing_prefix"
        if self._has_left_a_window(request_id, capture):
            return "outside_window"
        return "duplicate" if self.directory.holds(capture.key) else None

    def _has_left_a_window(self, request_id: str, capture: Capture) -> bool:
        """Whether a sliding-window group may have given up blocks of the captured tokens: it does
        so for tokens that no token after those computed so far can see."""
        computed = self._blocks.computed_before(request_id)
        return any(
            window is not None and capture.start < computed - window + 1
            for window in self._config.windows
        )

    def _refuse(self, params: RequestParams, capture: Capture, reason: str) -> None:
        self._events.emit(
            EventKind.CAPTURE_REFUSED, handle=params.handle, key=capture.key, reason=reason
        )

    def _finish_step(self, record: StepRecord, inject_ms: float) -> None:
        for handle in record.injected:
            self._events.emit(EventKind.COMPOSED, handle=handle, inject_ms=inject_ms)
        for handle, key in record.captured:
            self._publish(handle, key)
        for handle, forgotten in record.forgotten:
            self._events.emit(
                EventKind.FORGOTTEN,
                handle=handle,
                num_chunks=len(forgotten.keys),
                num_dependants=forgotten.num_dependants,
                num_pending=len(forgotten.pending),
                num_tokens=forgotten.num_tokens,
            )
        for key in record.zeroed:
            self._events.emit(EventKind.ZEROED, key=key)
        self._pending.zeroed.extend(self.directory.unpin(record.pinned))

    def _publish(self, handle: str, key: ChunkKey) -> None:
        entry = self.directory.reserved(key)
        if not self.directory.publish(key):
            self._events.emit(EventKind.CAPTURE_REFUSED, handle=handle, key=key, reason="fenced")
            self._pending.zeroed.append(key)
            return
        self._events.emit(
            EventKind.PUBLISHED,
            key=key,
            num_tokens=entry.num_tokens,
            fact=entry.fact.fact_id if entry.fact else None,
            revision=entry.fact.revision if entry.fact else 0,
            tier="gpu",
        )
        self._events.emit(EventKind.CAPTURED, handle=handle, key=key)
