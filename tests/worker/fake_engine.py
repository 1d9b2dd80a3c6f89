"""An engine without a model: the real chunk directory, and answers of numbered words.

It treats requests as the connector's scheduler side does, one step each, so that use cases can be
driven into corners (evictions, fences, lost events) that a real engine reaches rarely.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.directory import ChunkDirectory
from inferscale_core.kv.pages import PagePool
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.canonical import scope_of
from inferscale_core.vllm_connector.events import Event, EventKind
from inferscale_core.vllm_connector.params import Capture, RequestParams
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.protocol import ArenaSize, EngineOutput, EngineRequest, NextToken
from services.worker.engine.reports import Reports

PAGE_TOKENS = 4


class FakeEngine:
    """before: called with each request before it is scheduled. hold: while clear, requests wait;
    they are scheduled in the order in which they came. talk: while clear, none gets a token behind
    its first one. says: the log-probabilities of the first token behind a request."""

    def __init__(
        self,
        mirror: DirectoryMirror,
        reports: Reports,
        *,
        num_pages: int = 2000,
        max_model_len: int = 4000,
    ) -> None:
        self._mirror = mirror
        self._reports = reports
        self._seq = 0
        self.arena = ArenaSize(num_pages, PAGE_TOKENS, 100)
        self.max_model_len = max_model_len
        self.directory = ChunkDirectory(PagePool(num_pages, PAGE_TOKENS))
        self.requests: list[EngineRequest] = []
        self.aborted: list[str] = []
        self.before: Callable[[EngineRequest], Any] = lambda request: None
        self.says: Callable[[EngineRequest], NextToken] = lambda request: NextToken(7, {7: 0.0})
        self.hold = asyncio.Event()
        self.hold.set()
        self.talk = asyncio.Event()
        self.talk.set()
        self._in_order = asyncio.Lock()
        self.num_running = 0
        self.max_running = 0

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        self.requests.append(request)
        self.num_running += 1
        self.max_running = max(self.max_running, self.num_running)
        finished = False
        try:
            await asyncio.sleep(0)
            self.before(request)
            async with self._in_order:
                await self.hold.wait()
                self._schedule(request.params)
            num_tokens = request.sampling.max_tokens
            for number in range(1, num_tokens + 1):
                await asyncio.sleep(0)
                if number > 1:
                    await self.talk.wait()
                reason = "length" if number == num_tokens else None
                first = self.says(request) if request.top_logprobs and number == 1 else None
                yield EngineOutput(f"w{number} ", number, reason, 1.0, 1.25, 1.5, first)
            finished = True
        finally:
            self.num_running -= 1
            if not finished:
                self.aborted.append(request.params.handle)

    async def next_token(
        self, request: EngineRequest, *, top: int = 0, token_ids: Sequence[int] = ()
    ) -> NextToken:
        async with aclosing(self.stream(request)) as outputs:
            async for _ in outputs:
                pass
        return self.says(request)

    def emit(self, kind: EventKind, *, lost: bool = False, **fields: Any) -> None:
        self._seq += 1
        if lost:
            return
        event = Event(self._seq, kind, fields)
        self._mirror.apply(event)
        self._reports.record(event)

    def evict(self, key: ChunkKey) -> None:
        """Take one chunk away, as making room for another does, and tell."""
        self.lose(key)
        self.emit(EventKind.DROPPED, key=key, reason="evicted", pending=[])

    def lose(self, key: ChunkKey) -> None:
        """Take one chunk away without a word."""
        entry = self.directory.get(key)
        assert entry is not None
        assert entry.gpu is not None
        self.directory.lost(entry.gpu)
        self.directory.drain_moved()

    def captures(self) -> list[Capture]:
        return [r.params.capture for r in self.requests if r.params.capture is not None]

    def _schedule(self, params: RequestParams) -> None:
        if params.forget is not None:
            self._forget(params)
        run = self.directory.resident_run(params.spans)
        injected = sum(entry.num_tokens for entry in run)
        self.emit(EventKind.SERVED, handle=params.handle, native_tokens=0, injected_tokens=injected)
        if injected:
            self.emit(EventKind.COMPOSED, handle=params.handle, inject_ms=0.5)
        if params.capture is not None:
            self._capture(params, params.capture, len(run) == len(params.spans))

    def _forget(self, params: RequestParams) -> None:
        assert params.forget is not None
        command = params.forget
        dropped = self.directory.forget(command.scope, command.fact_ids, command.version)
        for key in dropped.keys:
            waiting = list(dropped.pending.get(key, ()))
            self.emit(EventKind.DROPPED, key=key, reason="forgotten", pending=waiting)
        self.emit(
            EventKind.FORGOTTEN,
            handle=params.handle,
            num_chunks=len(dropped.keys),
            num_dependants=dropped.num_dependants,
            num_tokens=dropped.num_tokens,
            num_by_tier={tier: dropped.num_by_tier.get(tier, 0) for tier in Tier},
            num_pending=sum(map(len, dropped.pending.values())),
        )

    def _capture(self, params: RequestParams, capture: Capture, is_whole: bool) -> None:
        reason, entry = self._refusal(capture, is_whole), None
        if reason is None:
            entry = self.directory.reserve(
                capture.key,
                capture.num_tokens,
                origin=capture.start,
                fact=capture.fact,
                prefix_keys=capture.prefix_keys,
            )
            reason = None if entry else "arena_full"
        for moved in self.directory.drain_moved():
            assert moved.tier is None, "there is only the arena"
            self.emit(EventKind.DROPPED, key=moved.key, reason="evicted", pending=[])
        if reason is not None:
            self.emit(
                EventKind.CAPTURE_REFUSED, handle=params.handle, key=capture.key, reason=reason
            )
            return
        assert entry is not None
        self.directory.publish(entry)
        fact = capture.fact
        self.emit(
            EventKind.PUBLISHED,
            key=capture.key,
            num_tokens=capture.num_tokens,
            fact=fact.fact_id if fact else None,
            revision=fact.revision if fact else 0,
            tier="gpu",
        )
        self.emit(EventKind.CAPTURED, handle=params.handle, key=capture.key)

    def _refusal(self, capture: Capture, is_whole: bool) -> str | None:
        if self.directory.is_fenced(scope_of(capture.key), capture.planned_version):
            return "fenced"
        if not is_whole or not all(self.directory.get(key) for key in capture.prefix_keys):
            return "missing_prefix"
        return "duplicate" if self.directory.holds(capture.key) else None
