"""vLLM in its own process, with our connector loaded.

Source: vLLM 0.26 and 0.32, v1/engine/async_llm.py (AsyncLLM.generate aborts a request whose
generator is closed), v1/metrics/stats.py (RequestStateStats: the engine's monotonic clock).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from inferscale_core.errors import EngineError, Unavailable, Unsupported
from inferscale_core.ids import ModelRevision, RecipeHash
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.key_means import KeyMeans, RankMeans, key_means_of_ranks
from inferscale_core.memory.recipes import Storage
from inferscale_core.settings import EngineSettings, set_engine_environment
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.vllm_connector.config import GPU_BLOCK_SIZE
from services.worker.engine.arena_bytes import arena_bytes
from services.worker.engine.failures import EngineFailures
from services.worker.engine.model_files import ModelFiles
from services.worker.engine.phases import Kind, Phases
from services.worker.engine.protocol import (
    MAX_LOGPROBS,
    ONE_TOKEN,
    ArenaSize,
    EngineOutput,
    EngineRequest,
    NextToken,
    SamplingOptions,
)

_log = get_logger(__name__)
_CONNECTOR = "inferscale_core.vllm_connector"
_MAX_SEED = 2**63
CPU_CACHE_BYTES = 2 << 30
WATCH_EVERY_S = 1.0

_stopped: list[Any] = []
"""Engines kept until the interpreter ends: collected earlier they warn of their zmq context, which
vLLM never closes; collected then, their finaliser calls `shutdown` when its modules are gone."""


class EngineHost:
    """The one engine of a worker. Running from `start` on, then dead or stopped.

    Every request of a dead engine raises Unavailable.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._arena: ArenaSize | None = None
        self._phases = Phases()
        self._failures = EngineFailures.of_installed_engine()

    @classmethod
    async def start(
        cls,
        settings: EngineSettings,
        model: ModelFiles,
        event_endpoint: str,
        storage: Storage = Storage.CACHE,
        key_means: KeyMeans | None = None,
        **overrides: Any,
    ) -> EngineHost:
        """Takes tens of seconds. storage: the recipe's. key_means: what a quantised storage leaves
        out, for which `model` must be named (`ModelFiles.stored_as`). overrides: of the
        engine's own arguments, for benchmarks.

        Raises Unsupported for what the connector refuses, by name, and WrongSettings for a size of
        the arena that cannot be had.
        """
        set_engine_environment()
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = _engine_arguments(settings, model, event_endpoint, storage, overrides)
        try:
            # Blocking: nothing else runs in this process before its engine does.
            host = cls(AsyncLLM.from_engine_args(arguments))
        except Exception as exc:
            name = model.served_name
            raise Unsupported(f"the engine did not start with {name!r}: {exc}") from exc
        try:
            host._arena = await host._start_connector(key_means)
        except BaseException:
            host.stop()
            raise
        return host

    @property
    def arena(self) -> ArenaSize:
        assert self._arena is not None, "the engine was started"
        return self._arena

    @property
    def max_model_len(self) -> int:
        return int(self._llm.model_config.max_model_len)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        num_tokens = 0
        with self._failures.translated(request.params.handle):
            outputs = self._generate(request, _sampling_params(request))
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    completion, stats = output.outputs[0], output.metrics
                    first = None
                    if request.top_logprobs and not num_tokens and completion.token_ids:
                        first = _likeliest(completion.logprobs[0])
                    num_tokens += len(completion.token_ids)
                    yield EngineOutput(
                        text=completion.text,
                        num_tokens=num_tokens,
                        finish_reason=completion.finish_reason,
                        queued_s=stats.queued_ts,
                        scheduled_s=stats.scheduled_ts,
                        first_token_s=stats.first_token_ts,
                        first=first,
                    )

    async def next_token(
        self, request: EngineRequest, *, top: int = 0, token_ids: Sequence[int] = ()
    ) -> NextToken:
        kind = Kind.NAMED if token_ids else Kind.LIKELIEST
        with self._failures.translated(request.params.handle):
            params = _sampling_params(replace(request, sampling=ONE_TOKEN))
            params.detokenize = False
            # The engine wants one or the other.
            if token_ids:
                params.logprob_token_ids = list(token_ids)
            else:
                params.logprobs = top
            outputs = self._generate(request, params)
            async with self._phases.inside(kind), contextlib.aclosing(outputs):
                async for output in outputs:
                    completion = output.outputs[0]
        first = completion.logprobs[0]
        logprobs = {token_id: float(entry.logprob) for token_id, entry in first.items()}
        wanted = len(set(token_ids)) or top
        looked_at = set(token_ids) or logprobs.keys()
        found = sum(math.isfinite(logprobs.get(token_id, math.nan)) for token_id in looked_at)
        if found < wanted:
            raise EngineError(f"the engine gave {found} of {wanted} log-probabilities")
        return NextToken(completion.token_ids[0], logprobs)

    def _generate(self, request: EngineRequest, params: Any) -> AsyncGenerator[Any, None]:
        prompt = {"prompt_token_ids": list(request.token_ids), "cache_salt": request.cache_salt}
        outputs: AsyncGenerator[Any, None] = self._llm.generate(
            prompt, params, request.params.handle
        )
        return outputs

    async def call_ranks(self, method: str, *arguments: str) -> list[Any]:
        """Call a method of the connector's worker extension in every rank."""
        results: list[Any] = await self._llm.collective_rpc(method, args=arguments)
        return results

    async def open_disk(
        self, secret: StoreSecret, model_revision: ModelRevision, recipe_hash: RecipeHash
    ) -> None:
        """Give every rank its disk tier. Once, before the first request that names a chunk.

        Raises Unavailable when a rank cannot have its folder.
        """
        arguments = (secret.root.hex(), model_revision, recipe_hash)
        try:
            found = await self.call_ranks("inferscale_open_disk", *arguments)
        except Exception as exc:
            raise Unavailable(f"the disk tier cannot be opened: {exc}") from exc
        _log.info("engine.disk_opened", ranks=len(found), records=min(found))

    async def watch(self) -> NoReturn:
        """Raises Unavailable when the engine has died, also while nothing is asked of it."""
        while not self._llm.errored:
            await asyncio.sleep(WATCH_EVERY_S)
        raise Unavailable("the engine has died")

    def stop(self) -> None:
        """The last call."""
        self._llm.shutdown()
        self._llm.shutdown = lambda timeout=None: None
        _stopped.append(self._llm)

    async def measure_keys(self) -> None:
        """Begin to measure what keys have in common, over what is stored from now on."""
        await self.call_ranks("inferscale_measure_keys")

    async def measured_keys(self) -> tuple[KeyMeans, list[float]] | None:
        """What was measured since `measure_keys`: the means, and of each layer of each rank the
        part of its keys' square that is theirs. None when nothing was stored behind other tokens.

        Raises Unsupported where ranks cannot tell which heads they hold.
        """
        try:
            ranks = await self.call_ranks("inferscale_key_means")
        except Exception as exc:
            raise Unsupported(str(exc)) from exc
        found = [
            {name: RankMeans(*part) for name, part in rank["layers"].items()} for rank in ranks
        ]
        if not all(found):
            return None
        return key_means_of_ranks(found), [share for rank in ranks for share in rank["shares"]]

    async def _start_connector(self, key_means: KeyMeans | None) -> ArenaSize:
        """Bind rotary tables and layouts. The reason for a refusal reaches us as text only."""
        means = "" if key_means is None else key_means.to_text()
        try:
            started = await self.call_ranks("inferscale_start", means)
            sizes = await self.call_ranks("inferscale_arena")
        except Exception as exc:
            raise Unsupported(str(exc)) from exc
        _log.info("engine.started", ranks=len(started), summary=started[0])
        assert all(size == sizes[0] for size in sizes), "ranks agree on the arena"
        return ArenaSize(**sizes[0])


def engine_version() -> str:
    """Of the vLLM that a worker here would load."""
    set_engine_environment()
    import vllm

    return str(vllm.__version__)


def device_name() -> str:
    """Of what an engine here runs on."""
    set_engine_environment()
    from vllm.platforms import current_platform

    return str(current_platform.get_device_name())


def _engine_arguments(
    settings: EngineSettings,
    model: ModelFiles,
    event_endpoint: str,
    storage: Storage,
    overrides: dict[str, Any],
) -> Any:
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    is_cpu = current_platform.is_cpu()
    arena = arena_bytes(settings)
    cache_bytes = settings.kv_cache_bytes
    memory: dict[str, Any] = (
        {"kv_cache_memory_bytes": CPU_CACHE_BYTES if cache_bytes is None else cache_bytes}
        if is_cpu
        else {
            "kv_cache_memory_bytes": cache_bytes,
            "gpu_memory_utilization": settings.gpu_memory_utilization,
        }
    )
    return AsyncEngineArgs(
        model=str(model.folder),
        served_model_name=model.served_name,
        dtype=settings.dtype,
        kv_cache_dtype=settings.kv_cache_dtype,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        block_size=settings.block_size or (None if is_cpu else GPU_BLOCK_SIZE),
        tensor_parallel_size=settings.tensor_parallel_size,
        enforce_eager=settings.enforce_eager,
        enable_prefix_caching=settings.enable_prefix_caching,
        max_logprobs=MAX_LOGPROBS,
        worker_extension_cls=f"{_CONNECTOR}.extension.WorkerExtension",
        kv_transfer_config=KVTransferConfig(
            kv_connector="InferScaleConnector",
            kv_connector_module_path=f"{_CONNECTOR}.connector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "event_endpoint": event_endpoint,
                "arena_bytes": arena,
                "page_tokens": settings.page_tokens,
                "storage": str(storage),
                "host_bytes": _host_bytes(settings, arena, is_cpu=is_cpu),
                "tenant_share": settings.tenant_share,
                "disk_dir": settings.disk_dir,
                "disk_bytes": settings.disk_bytes if settings.disk_dir else 0,
            },
        ),
        **memory,
        **overrides,
    )


def _host_bytes(settings: EngineSettings, arena: int, *, is_cpu: bool) -> int:
    if settings.host_bytes is not None:
        return settings.host_bytes
    return 0 if is_cpu else 2 * arena


def _sampling_params(request: EngineRequest) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    options: SamplingOptions = request.sampling
    return SamplingParams(
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        min_tokens=options.min_tokens,
        logprobs=request.top_logprobs or None,
        seed=None if options.seed is None else options.seed % _MAX_SEED,
        stop=list(options.stop) or None,
        output_kind=RequestOutputKind.DELTA,
        extra_args={"kv_transfer_params": request.params.to_wire()},
        skip_clone=True,  # Made for this request alone: the engine need not copy it in depth.
    )


def _likeliest(entries: Any) -> NextToken:
    """Of what the engine lists for one token: the likeliest ones, and the one it has drawn."""
    logprobs = {token_id: float(entry.logprob) for token_id, entry in entries.items()}
    return NextToken(max(logprobs, key=logprobs.__getitem__), logprobs)
