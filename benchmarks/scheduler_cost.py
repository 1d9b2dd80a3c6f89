"""What one request costs the host because of us: `python -m benchmarks.scheduler_cost`.

    params    to `kv_transfer_params`, in the worker's process
    engine    vLLM's own handling of them: checked, packed, unpacked; less that of a request without
    parse     `on_new_request`
    match     `get_num_new_matched_tokens`
    plan      `update_state_after_alloc`: pins, and where every chunk lies
    step      `build_connector_meta`: captures are planned here
    launch    in a rank, from the step's metadata to the numbers that the device reads
    done      `update_connector_output` and `request_finished`

A chat over k facts, and an encode request behind the header and 32 facts, each alone in its step;
and encode requests of as many users as there are in one step, per request; the same with an arena
that is full, so that each chunk that is stored makes another give way, and with a step that is not
done when the next is planned, as an engine with async scheduling has it. Plain Python and numpy,
so it is the same code on any machine; the time is this machine's. Cold: the processor's caches are
filled with something else before each step, as the engine does.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from benchmarks.host_table import PARTS, host_table
from benchmarks.rows import make_rows, replace_rows
from inferscale_core.ids import ChunkKey, FactId
from inferscale_core.kv.rows import LayerShape
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.config import ConnectorConfig
from inferscale_core.vllm_connector.copies import pack
from inferscale_core.vllm_connector.events import bodies_to_wire
from inferscale_core.vllm_connector.metadata import StepDone
from inferscale_core.vllm_connector.params import Capture, RequestParams
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide

FACT_TOKENS, NEW_TOKENS, TAIL_TOKENS, BLOCK = 30, 28, 64, 16
NEIGHBOURS = 32
USERS = 100
REPEATS, MIN_REPEATS = 200, 15
SPARE_CHUNKS = 30
"""Of each user, for which a full arena has room besides what is asked with."""

CACHE_BYTES = 64 << 20
"""More than a core's share of any cache."""


class Parts:
    """Seconds that each part of each step took, all its requests together."""

    def __init__(self) -> None:
        self._samples: list[dict[str, float]] = []

    def begin(self) -> None:
        self._samples.append(defaultdict(float))

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._samples[-1][part] += time.perf_counter() - started

    def median_us(self, part: str, per: int) -> float:
        return statistics.median(sample[part] for sample in self._samples) * 1e6 / per


class User:
    """Has facts in the arena; asks with all of them."""

    def __init__(self, side: SchedulerSide, name: str, num_spans: int) -> None:
        self._name = f"tenant/{name:u>32}"
        self.spans = tuple(
            Span(_stored(side, ChunkKey(f"{self._name}/{index:032d}")), FACT_TOKENS)
            for index in range(num_spans)
        )
        self.num_computed = num_spans * FACT_TOKENS
        # Not of one run, as nothing in a busy engine is.
        num_blocks = -(-(self.num_computed + TAIL_TOKENS) // BLOCK)
        blocks = np.random.default_rng(0).permutation(10_000)[:num_blocks]
        self.block_ids = (blocks.tolist(),)

    def params(self, handle: str, *, captures: bool) -> RequestParams:
        if not captures:
            return RequestParams(handle, self.spans)
        key = ChunkKey(f"{self._name}/{handle:>032}")
        seen = tuple(span.key for span in self.spans[1:])  # All but the header.
        fact = FactRef(FactId(handle), 1)
        capture = Capture(key, self.num_computed, NEW_TOKENS, seen, fact, 0)
        return RequestParams(handle, self.spans, capture)


def _stored(side: SchedulerSide, key: ChunkKey) -> ChunkKey:
    fact = FactRef(FactId(key), 1)
    entry = side.directory.reserve(key, FACT_TOKENS, origin=100, fact=fact, prefix_keys=())
    assert entry is not None
    side.directory.publish(entry)
    return key


class Requests:
    """One step after the other, each with a request of every user, through all that vLLM calls."""

    def __init__(
        self, num_users: int, num_spans: int, *, captures: bool, is_full: bool = False
    ) -> None:
        num_chunks = num_users * (num_spans + (SPARE_CHUNKS if is_full else REPEATS))
        config = ConnectorConfig(
            layer_names=("layer",),
            layers=(LayerShape(8, 128),),
            group_of_layer=(0,),
            windows=(None,),
            dtype=torch.bfloat16,
            block_size=BLOCK,
            page_tokens=4,
            num_pages=8 * num_chunks,
            event_endpoint=None,
        )
        self.side = SchedulerSide(config, Packing())
        self._users = [User(self.side, str(n), num_spans) for n in range(num_users)]
        self._captures = captures
        self._num_new = NEW_TOKENS if captures else TAIL_TOKENS
        self._encoder, self._decoder = MsgpackEncoder(), MsgpackDecoder(SamplingParams)
        self._packed = memoryview(bytearray(4 << 20))
        self._num_in_flight = int(is_full)
        self._in_flight: deque[tuple[int, list[tuple[User, Any]]]] = deque()
        if is_full:
            for index in range(SPARE_CHUNKS + MIN_REPEATS):
                self.step(f"first{index}", Parts())
            assert self.side.directory.stats.evictions, "the arena was to be full"

    def step(self, name: str, parts: Parts) -> None:
        side = self.side
        parts.begin()
        asked = []
        for number, user in enumerate(self._users):
            params = user.params(f"{name}-{number}", captures=self._captures)
            with parts.time("params"):
                wire = params.to_wire()
            with parts.time("engine"):
                wire = self.through_engine({"kv_transfer_params": wire})["kv_transfer_params"]
            asked.append((user, self._request(user, params.handle, wire)))
        with parts.time("parse"):
            for _, request in asked:
                side.new_request(request)
        for user, request in asked:
            blocks: Any = SimpleNamespace(get_block_ids=lambda user=user: user.block_ids)
            with parts.time("match"):
                injected = side.matched_tokens(request, 0)
            assert injected == user.num_computed, "every chunk is in the arena"
            with parts.time("plan"):
                side.allocated(request, blocks, injected)
        output = self._scheduled(asked)
        with parts.time("step"):
            step = side.build_step(output)
        with parts.time("launch"):
            for copies in filter(None, (step.inject, step.capture)):
                packed, _ = pack(copies)
                self._packed[: len(packed)] = packed
        assert len(step.capture) == self._captures * len(asked)
        self._in_flight.append((step.step_id, asked))
        if len(self._in_flight) > self._num_in_flight:
            step_id, ended = self._in_flight.popleft()
            done: Any = SimpleNamespace(kv_connector_worker_meta=StepDone([step_id]))
            with parts.time("done"):
                side.step_done(done)
                for _, request in ended:
                    side.finished(request)

    def step_without(self, parts: Parts) -> None:
        """The engine's part of requests that tell the connector nothing."""
        parts.begin()
        for _ in self._users:
            with parts.time("engine"):
                self.through_engine(None)

    def through_engine(self, extra_args: dict[str, Any] | None) -> dict[str, Any]:
        """Between the worker's call and the scheduler's first."""
        sampling = SamplingParams(max_tokens=1, extra_args=extra_args, skip_clone=True)
        return self._decoder.decode(self._encoder.encode(sampling.clone())).extra_args or {}

    def _request(self, user: User, handle: str, wire: Any) -> Any:
        return SimpleNamespace(
            request_id=handle,
            kv_transfer_params=wire,
            num_prompt_tokens=user.num_computed + self._num_new,
            lora_request=None,
        )

    def _scheduled(self, asked: list[tuple[User, Any]]) -> Any:
        new = [
            SimpleNamespace(
                req_id=request.request_id,
                block_ids=user.block_ids,
                num_computed_tokens=user.num_computed,
            )
            for user, request in asked
        ]
        cached = SimpleNamespace(
            req_ids=[], new_block_ids=[], num_computed_tokens=[], resumed_req_ids=set()
        )
        return SimpleNamespace(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            num_scheduled_tokens={request.request_id: self._num_new for _, request in asked},
        )


class Packing:
    """Packs events as they go over the socket, and sends them nowhere."""

    def send(self, bodies: list[dict[str, Any]]) -> None:
        bodies_to_wire(bodies)


def measure(
    num_users: int, num_spans: int, *, captures: bool, is_cold: bool, is_full: bool = False
) -> dict[str, float]:
    """Median microseconds of each part, per request; of "engine", less those of a request without
    params."""
    requests = Requests(num_users, num_spans, captures=captures, is_full=is_full)
    parts, without = Parts(), Parts()
    other = np.ones(CACHE_BYTES // 8)
    for index in range(max(MIN_REPEATS, REPEATS // num_users)):
        for is_ours in (False, True):
            if is_cold:
                other += 1.0
            if is_ours:
                requests.step(f"r{index}", parts)
            else:
                requests.step_without(without)
    medians = {part: parts.median_us(part, num_users) for part in PARTS}
    medians["engine"] -= without.median_us("engine", num_users)
    return medians


def main() -> None:
    figures = []
    for is_cold in (True, False):
        chats = [(f"chat, k = {k}", 1, k + 1, False, False) for k in (5, 10, 20, 50, 130)]
        together = f"encode, {USERS} in a step"
        encodes = [
            (name, num_users, NEIGHBOURS + 1, True, is_full)
            for name, num_users, is_full in (
                ("encode", 1, False),
                (together, USERS, False),
                (f"{together}, arena full", USERS, True),
            )
        ]
        for name, num_users, num_spans, captures, is_full in [*chats, *encodes]:
            medians = measure(
                num_users, num_spans, captures=captures, is_cold=is_cold, is_full=is_full
            )
            caches = "cold" if is_cold else "warm"
            rounded = {part: round(value, 1) for part, value in medians.items()}
            total = round(sum(medians.values()), 1)
            figures.append({"request": name, "caches": caches, **rounded, "all": total})
    rows = make_rows("host_cost", figures)
    replace_rows(rows)
    print(host_table(rows))


if __name__ == "__main__":
    main()
