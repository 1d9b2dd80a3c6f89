"""Methods that the engine adds to its workers, called through `collective_rpc`."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group

from inferscale_core.vllm_connector.connector import InferScaleConnector
from inferscale_core.vllm_connector.worker_side import WorkerSide


class WorkerExtension:
    """Source: vLLM 0.26 and 0.32, `worker_extension_cls` (mixed into the worker class)."""

    model_runner: Any
    vllm_config: Any

    def inferscale_start(self) -> str:
        """Bind the loaded model's rotary tables and cache layouts. Once, while the engine is idle.

        Raises Unsupported, by name, for what we cannot invert or read. Returns a line for the log.
        """
        return _worker_side().start(
            self.model_runner.get_model(),
            self.vllm_config.compilation_config.static_forward_context,
            self.vllm_config.model_config.max_model_len,
        )

    def inferscale_arena(self) -> dict[str, int]:
        """The pool of this rank: `num_pages`, `page_tokens`, `bytes_per_token`."""
        config = _worker_side().config
        return {
            "num_pages": config.num_pages,
            "page_tokens": config.page_tokens,
            "bytes_per_token": config.bytes_per_token,
        }

    def inferscale_arena_is_zero(self) -> bool:
        """Whether no row of the arena holds anything: what deletes are tested by."""
        return not bool(_worker_side().arena.rows.any())


def _worker_side() -> WorkerSide:
    """The side of this rank's connector. Asserts that the engine loaded ours."""
    connector = get_kv_transfer_group()
    assert isinstance(connector, InferScaleConnector)
    assert connector.worker_side is not None
    return connector.worker_side
