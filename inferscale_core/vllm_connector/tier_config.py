"""The tiers below the arena: how large they are, and where the disk tier lies.

Both sides derive them from the same engine configuration, as they do the arena.

Source: vLLM 0.26 and 0.32, config/parallel.py (world_size).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferscale_core.errors import InvalidInput
from inferscale_core.vllm_connector.config import ConnectorConfig

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclass(frozen=True, slots=True)
class TierConfig:
    """Of each rank. num_host_pages, num_disk_pages: 0 where there is no such tier. disk_bytes: the
    bound of the disk tier's folder. tenant_share: ratio of a tier's pages beyond which a tenant's
    own chunks give way first. num_ranks: acknowledgements that an operation takes."""

    num_host_pages: int = 0
    num_disk_pages: int = 0
    disk_dir: Path | None = None
    disk_bytes: int = 0
    tenant_share: float = 1.0
    num_ranks: int = 1


def read_tiers(vllm_config: VllmConfig, config: ConnectorConfig) -> TierConfig:
    """Raises InvalidInput for a setting out of range."""
    extra = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
    page_bytes = config.page_tokens * config.bytes_per_token
    folder = extra.get("disk_dir")
    host_bytes, disk_bytes = _bytes(extra, "host_bytes"), _bytes(extra, "disk_bytes")
    if folder is None:
        disk_bytes = 0
    elif disk_bytes < page_bytes:
        raise InvalidInput("engine.disk_bytes", f"{disk_bytes} holds not one page")
    if 0 < host_bytes < page_bytes:
        raise InvalidInput("engine.host_bytes", f"{host_bytes} holds not one page")
    return TierConfig(
        num_host_pages=host_bytes // page_bytes,
        num_disk_pages=int(disk_bytes * _DISK_PAYLOAD) // page_bytes,
        disk_dir=Path(folder).expanduser() if folder is not None else None,
        disk_bytes=disk_bytes,
        tenant_share=_share(extra),
        num_ranks=vllm_config.parallel_config.world_size,
    )


_DISK_PAYLOAD = 0.98
"""Of a record's bytes, rows at least: the rest describes and seals it. So the directory evicts
before the store would have to."""


def _bytes(extra: dict[str, Any], name: str) -> int:
    value = extra.get(name) or 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f"engine.{name}", f"{value!r} is not a number of bytes")
    return value


def _share(extra: dict[str, Any]) -> float:
    value = extra.get("tenant_share", 1.0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise InvalidInput("engine.tenant_share", f"{value!r} is not above 0 and at most 1")
    return float(value)
