"""The class that vLLM loads. It holds no logic: it builds one side and forwards.

    KVTransferConfig(
        kv_connector="InferScaleConnector",
        kv_connector_module_path="inferscale_core.vllm_connector.connector",
        kv_role="kv_both",
        kv_connector_extra_config={"event_endpoint": …, "arena_bytes": …, "page_tokens": …,
            "host_bytes": …, "disk_dir": …, "disk_bytes": …, "tenant_share": …},
    )

and `worker_extension_cls="inferscale_core.vllm_connector.extension.WorkerExtension"`, whose
`inferscale_start` must be called once before the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

from inferscale_core.vllm_connector.config import read_config
from inferscale_core.vllm_connector.metadata import StepDone, StepMetadata
from inferscale_core.vllm_connector.scheduler_side import SchedulerSide
from inferscale_core.vllm_connector.sinks import open_sink
from inferscale_core.vllm_connector.tier_config import read_tiers
from inferscale_core.vllm_connector.worker_side import WorkerSide

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request


class InferScaleConnector(KVConnectorBase_V1, SupportsHMA):
    """Source: vLLM 0.26 and 0.32, distributed/kv_transfer/kv_connector/v1/base.py."""

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        config = read_config(vllm_config, kv_cache_config)
        tiers = read_tiers(vllm_config, config)
        self.scheduler_side: SchedulerSide | None = None
        self.worker_side: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            self.scheduler_side = SchedulerSide(config, open_sink(config.event_endpoint), tiers)
        else:
            self.worker_side = WorkerSide(config, tiers)

    # Scheduler side.

    def on_new_request(self, request: Request) -> None:
        self._scheduler.new_request(request)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """None: chunks are on their way into the arena, ask again in the next step."""
        return self._scheduler.matched_tokens(request, num_computed_tokens), False

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return self._scheduler.build_step(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        self._scheduler.step_done(connector_output)

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        self._scheduler.finished(request)
        return False, None

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        self._scheduler.finished(request)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Keep an idle engine stepping until freed rows are zeroed and tiers are at rest."""
        return self._scheduler.has_work

    # Worker side.

    def register_kv_caches(self, kv_caches: dict[str, Tensor]) -> None:
        self._worker.register(kv_caches)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        step = self._step
        if step is not None:
            self._worker.before_forward(step)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Everything was loaded before the forward pass."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Everything is captured after the forward pass."""

    def wait_for_save(self) -> None:
        step = self._step
        if step is not None:
            self._worker.after_forward(step)

    def build_connector_worker_meta(self) -> StepDone | None:
        return self._worker.acknowledge(self._step)

    def shutdown(self) -> None:
        if self.worker_side is not None:
            self.worker_side.close()

    @property
    def _scheduler(self) -> SchedulerSide:
        assert self.scheduler_side is not None
        return self.scheduler_side

    @property
    def _worker(self) -> WorkerSide:
        assert self.worker_side is not None
        return self.worker_side

    @property
    def _step(self) -> StepMetadata | None:
        if not self.has_connector_metadata():
            return None
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata)
        return metadata
