"""The half of the connector that decides: what is injected, captured, forgotten and evicted.

It runs inside the engine's scheduler, so nothing here may raise because of a request: malformed
parameters turn into plain prefill and a `rejected` event.

One step:

    on_new_request        parse; carry out `forget`
    get_num_new_matched…  count the leading run of known spans; None when some are not in the
                          arena: the request waits, others are served    (no side effects)
    update_state_after…   pin that run, note what is to be copied
    build_connector_meta  zero + inject + capture of this step, and what moves between tiers
    update_connector_out… unpin, publish, acknowledge                    (the ranks are done)
    request_finished      forget the request

Source: vLLM 0.26 and 0.32, v1/core/sched/scheduler.py and distributed/kv_transfer/…/v1/base.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inferscale_core.kv.directory import ChunkDirectory, Forgotten
from inferscale_core.kv.pages import PageBudget, PagePool
from inferscale_core.kv.readings import Reading
from inferscale_core.kv.tiers import Entry, Place, Tier
from inferscale_core.memory.canonical import behind_header, scope_of
from inferscale_core.memory.spans import Spans
from inferscale_core.vllm_connector.blocks import BlockTables, token_copy
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.copies import Copy
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.idle_check import IdleCheck
from inferscale_core.vllm_connector.idle_heap import IdleHeap
from inferscale_core.vllm_connector.metadata import StepDone, StepMetadata
from inferscale_core.vllm_connector.params import (
    Capture,
    Forget,
    MalformedParams,
    RequestParams,
    handle_of,
    params_from_wire,
)
from inferscale_core.vllm_connector.requests import RequestState
from inferscale_core.vllm_connector.sinks import EventLog, EventSink
from inferscale_core.vllm_connector.tier_config import TierConfig
from inferscale_core.vllm_connector.tiering import Adopted, Tiering
from inferscale_core.vllm_connector.usage import UsageReport

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request


@dataclass(slots=True)
class ForgetReport:
    """A forget that is confirmed when its step and these operations are done."""

    handle: str
    forgotten: Forgotten
    open_ops: set[int] = field(default_factory=set)


@dataclass(slots=True)
class StepRecord:
    """What an executed step gives back: readers, written chunks, injections, forgets to confirm."""

    readings: list[Reading] = field(default_factory=list)
    captured: list[tuple[str, Entry]] = field(default_factory=list)
    injected: list[str] = field(default_factory=list)
    forgets: list[ForgetReport] = field(default_factory=list)
    zeroed: list[Place] = field(default_factory=list)


class SchedulerSide:
    """Owns the engine's chunk directory. Called by the scheduler's thread only."""

    def __init__(
        self, config: ConnectorConfig, sink: EventSink, tiers: TierConfig | None = None
    ) -> None:
        """tiers: None when there is only the arena."""
        tiers = tiers or TierConfig()
        self._config = config
        self.sink = sink
        self._events = EventLog(sink)
        self.directory = open_directory(config, tiers)
        self.tiering = Tiering(self.directory, tiers.num_ranks)
        self._usage = UsageReport(self.directory, self._events)
        self._idle_check = IdleCheck(self.directory)
        self._idle_heap = IdleHeap()
        self._requests: dict[str, RequestState] = {}
        self._capture_ends: dict[str, int] = {}
        """Of requests whose capture is not named in a step yet: where the captured tokens end."""
        self._blocks = BlockTables()
        self._pending = StepRecord()
        self._unconfirmed: list[ForgetReport] = []
        self._copies: list[Copy] = []
        self._in_flight: dict[int, StepRecord] = {}
        self._next_step = 0

    def new_request(self, request: Request) -> None:
        """Parse what the request asks of us, and carry out its command."""
        state = self._parse(request)
        if state is not None:
            self._begin(request, state)
        self._events.flush()

    def matched_tokens(self, request: Request, num_computed_tokens: int) -> int | None:
        """Tokens beyond `num_computed_tokens` that chunks can supply. None: some are on their way,
        ask again. No side effects but that the tiers know of the request."""
        state = self._requests.get(request.request_id)
        if state is None:
            return 0
        state.find_run(self.directory)
        if state.is_on_gpu:
            state.offered = state.whole_run()
            return max(0, state.run_tokens - num_computed_tokens)
        wanted, supply = state.beyond(num_computed_tokens)
        if supply.end < state.run_tokens and not self.tiering.has_given_up(state.request_id):
            self.tiering.want(state.request_id, wanted)
            return None
        state.offered = supply
        return max(0, supply.end - num_computed_tokens)

    def allocated(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """Blocks exist now: pin the chunks and note the copy."""
        state = self._requests.get(request.request_id)
        if state is None:
            return
        state.num_injected = num_external_tokens
        if num_external_tokens > 0:
            self._inject(state, blocks, num_external_tokens)
        self.tiering.release(state.request_id)

    def build_step(self, output: SchedulerOutput) -> StepMetadata:
        """Everything the ranks do in this step; remembers what to give back when it is done."""
        self._blocks.advance(output)
        self._report_admitted()
        captures = self._captures(output)
        tier_ops = self.tiering.start()
        zero = self.directory.drain_to_zero()
        self._report_moves()
        record, self._pending = self._pending, StepRecord()
        record.zeroed = [place for place in self.directory.gpu.drain_freed() if place.is_reported]
        for report in record.forgets:
            report.open_ops = self.tiering.open_cleanups
        copies, self._copies = self._copies, []
        self._usage.changed(is_idle=not self._requests)
        self._events.flush()
        if not (len(zero) or copies or captures or record.forgets):
            self.directory.gpu.note_uses()
            return StepMetadata(tier_ops=tier_ops)
        self._next_step += 1
        self._in_flight[self._next_step] = record
        return StepMetadata(self._next_step, zero, copies, captures, tier_ops)

    def step_done(self, output: KVConnectorOutput) -> None:
        """Steps were executed by every rank: end readers, publish, acknowledge."""
        done = output.kv_connector_worker_meta
        if not isinstance(done, StepDone):
            return
        for step_id in done.step_ids:
            record = self._in_flight.pop(step_id, None)
            if record is not None:
                self._finish_step(record, done.inject_ms.get(step_id, 0.0))
        if done.tier_results:
            ended = self.tiering.done(done.tier_results)
            self._report_moves()
            self._report_ended(ended.places)
            for adopted in ended.adopted:
                self._report_adopted(adopted)
        self._confirm_forgets()
        self._usage.changed(is_idle=not self._requests)
        self._events.flush()
        if not self._requests and not self._in_flight and not self.has_work:
            self._idle_check.maybe()
            self._idle_heap.maybe()

    def finished(self, request: Request) -> dict[str, Any] | None:
        """The request ended or was aborted. Work already sent to the ranks goes on."""
        state = self._requests.pop(request.request_id, None)
        self._blocks.drop(request.request_id)
        if state is None:
            return None
        self.tiering.release(request.request_id)
        capture = state.params.capture
        if capture is not None and self._capture_ends.pop(request.request_id, None) is not None:
            self._refuse(state.params, capture, "aborted")
            self._events.flush()
        return None

    @property
    def has_work(self) -> bool:
        """Whether a step is needed even if no request asks for one."""
        return self.directory.has_rows_to_zero or self.tiering.has_work

    @property
    def num_requests(self) -> int:
        return len(self._requests)

    @property
    def num_steps_in_flight(self) -> int:
        return len(self._in_flight)

    def _begin(self, request: Request, state: RequestState) -> None:
        params = state.params
        self._requests[request.request_id] = state
        if params.forget is not None:
            self._forget(params.handle, params.forget)
        if params.adopt is not None:
            refused = self.tiering.adopt(params.handle, params.adopt)
            if refused is not None:
                self._report_adopted(refused)
        if params.capture is not None:
            self._blocks.follow(request.request_id)
            end = params.capture.start + params.capture.num_tokens
            self._capture_ends[request.request_id] = end

    def _parse(self, request: Request) -> RequestState | None:
        try:
            params = params_from_wire(request.kv_transfer_params)
            if params is None:
                return None
            spans = Spans.of(params.spans)
            num_span_tokens = self._check(params, spans, request)
        except MalformedParams as problem:
            self._reject(request, str(problem))
            return None
        return RequestState(request.request_id, params, spans, num_span_tokens)

    @staticmethod
    def _check(params: RequestParams, spans: Spans, request: Request) -> int:
        """Tokens that the spans hold."""
        keys, num_prompt = spans.keys, request.num_prompt_tokens
        num_spans = spans.num_tokens
        if num_spans >= num_prompt:
            raise MalformedParams("spans: as long as the prompt or longer")
        if len(set(keys)) != len(keys):
            raise MalformedParams("spans: a key is named twice")
        if request.lora_request is not None:
            raise MalformedParams("a request with an adapter takes no chunks and gives none")
        capture = params.capture
        if capture is None:
            return num_spans
        if capture.start + capture.num_tokens > num_prompt:
            raise MalformedParams("capture: reaches beyond the prompt")
        if capture.start < num_spans:
            raise MalformedParams("capture: starts inside the spans")
        return num_spans

    def _reject(self, request: Request, reason: str) -> None:
        handle = handle_of(request.kv_transfer_params)
        self._events.emit(EventKind.REJECTED, handle=handle, reason=reason)

    def _forget(self, handle: str, command: Forget) -> None:
        forgotten = self.directory.forget(command.scope, command.fact_ids, command.version)
        for key in forgotten.keys:
            waiting = forgotten.pending.get(key, ())
            self._events.emit(EventKind.DROPPED, key=key, reason="forgotten", pending=list(waiting))
        self._pending.forgets.append(ForgetReport(handle, forgotten))

    def _inject(self, state: RequestState, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """The injection covers the end of what was offered; the engine's own hit what is before."""
        supply = state.offered
        start = supply.end - num_external_tokens
        assert start >= supply.start, "nothing can be dropped between match and allocation"
        self._copies.append(
            token_copy(
                state.params.handle,
                supply.places,
                blocks.get_block_ids(),
                self._config.block_size,
                range(start, supply.end),
                first=supply.start,
            )
        )
        self._pending.readings.append(self.directory.gpu.read(supply.places))
        self.directory.stats.hits += len(supply.places)
        self.directory.stats.misses += len(state.spans) - len(supply.places)
        self._pending.injected.append(state.params.handle)

    def _report_moves(self) -> None:
        for moved in self.directory.drain_moved():
            if moved.tier is None:
                self._events.emit(EventKind.DROPPED, key=moved.key, reason="evicted", pending=[])
            else:
                self._events.emit(EventKind.MOVED, key=moved.key, tier=moved.tier)

    def _report_adopted(self, adopted: Adopted) -> None:
        for entry in adopted.entries:
            self._events.emit(EventKind.PUBLISHED, **published_fields(entry, Tier.DISK))
        self._events.emit(EventKind.ADOPTED, handle=adopted.handle, num_chunks=adopted.num_chunks)

    def _report_ended(self, places: Iterable[Place]) -> None:
        for place in places:
            self._events.emit(EventKind.ZEROED, key=place.entry.key, tier=place.tier)

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
        for request_id in list(self._blocks.scheduled_to_reach(self._capture_ends)):
            del self._capture_ends[request_id]
            state = self._requests[request_id]
            capture = state.params.capture
            assert capture is not None
            entry = self._reserve(request_id, state, capture)
            if entry is None:
                continue
            assert entry.gpu is not None, "it was just reserved there"
            block_ids = self._blocks.block_ids(request_id)
            copies.append(
                token_copy(
                    state.params.handle,
                    [entry.gpu],
                    block_ids,
                    self._config.block_size,
                    range(capture.start, capture.start + capture.num_tokens),
                    first=capture.start,
                )
            )
            self._pending.captured.append((state.params.handle, entry))
        return copies

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
        if capture.fact is not None and self.directory.is_fenced(
            scope_of(capture.key), capture.planned_version, capture.planned_at
        ):
            return "fenced"
        if state.covered < state.num_span_tokens:
            return "missing_prefix"
        if not state.still_finds(capture.prefix_keys, self.directory):
            return "missing_prefix"
        if not self._sees_its_own_user(state, capture):
            return "another_user"
        if self._has_left_a_window(request_id, capture):
            return "outside_window"
        return "duplicate" if self.directory.holds(capture.key) else None

    def _sees_its_own_user(self, state: RequestState, capture: Capture) -> bool:
        """Spans that were injected are one user's, so the first that is no header's says whose."""
        scope, own = scope_of(capture.key), behind_header(state.spans.keys)
        if own and scope_of(own[0]) != scope:
            return False
        seen = capture.prefix_keys
        return state.ends_with(seen) or self.directory.are_of(scope, seen)

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
        for handle, entry in record.captured:
            self._publish(handle, entry)
        self._report_ended(record.zeroed)
        self._unconfirmed.extend(record.forgets)
        self.directory.gpu.end_reads(record.readings)

    def _confirm_forgets(self) -> None:
        """Those whose rows are zeroed and records removed; readers may still hold some up."""
        waiting = []
        for report in self._unconfirmed:
            report.open_ops &= self.tiering.open_cleanups
            if report.open_ops:
                waiting.append(report)
                continue
            forgotten = report.forgotten
            self._events.emit(
                EventKind.FORGOTTEN,
                handle=report.handle,
                num_chunks=len(forgotten.keys),
                num_dependants=forgotten.num_dependants,
                num_tokens=forgotten.num_tokens,
                num_by_tier={tier: forgotten.num_by_tier.get(tier, 0) for tier in Tier},
                num_pending=sum(map(len, forgotten.pending.values())),
            )
        self._unconfirmed = waiting

    def _publish(self, handle: str, entry: Entry) -> None:
        if not self.directory.publish(entry):
            self._events.emit(
                EventKind.CAPTURE_REFUSED, handle=handle, key=entry.key, reason="fenced"
            )
            return
        self.tiering.published(entry)
        self._events.emit(EventKind.PUBLISHED, **published_fields(entry, Tier.GPU))
        self._events.emit(EventKind.CAPTURED, handle=handle, key=entry.key)


def open_directory(config: ConnectorConfig, tiers: TierConfig) -> ChunkDirectory:
    host = PagePool(tiers.num_host_pages, config.page_tokens) if tiers.num_host_pages else None
    disk = PageBudget(tiers.num_disk_pages, config.page_tokens) if tiers.num_disk_pages else None
    arena = PagePool(config.num_pages, config.page_tokens)
    return ChunkDirectory(arena, host, disk, tenant_share=tiers.tenant_share)


def published_fields(entry: Entry, tier: Tier) -> dict[str, Any]:
    return {
        "key": entry.key,
        "num_tokens": entry.num_tokens,
        "fact": entry.fact.fact_id if entry.fact else None,
        "revision": entry.fact.revision if entry.fact else 0,
        "tier": tier,
    }
