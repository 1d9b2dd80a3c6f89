"""The chunk of the header, which every injected request begins with."""

from __future__ import annotations

import asyncio
import uuid

from inferscale_core.errors import EngineError
from inferscale_core.ids import ChunkKey
from inferscale_core.kv.tiers import Tier
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Capture, RequestParams
from services.worker.engine.mirror import DirectoryMirror, MirroredChunk
from services.worker.engine.protocol import ONE_TOKEN, Engine, EngineRequest, run_to_end
from services.worker.engine.reports import Reports
from services.worker.salts import CacheSalts

CAPTURE_WAIT_S = 5.0
"""For the engine's word on a capture, which it gives with the request's last token."""

CAPTURE_OUTCOMES = frozenset({EventKind.CAPTURED, EventKind.CAPTURE_REFUSED, EventKind.REJECTED})


class HeaderChunk:
    """Encodes the header when it is not resident: at the start, and after its loss."""

    def __init__(
        self,
        key: ChunkKey,
        token_ids: tuple[int, ...],
        engine: Engine,
        reports: Reports,
        mirror: DirectoryMirror,
    ) -> None:
        self._key = key
        self._token_ids = token_ids
        self._engine = engine
        self._reports = reports
        self._mirror = mirror
        self._lock = asyncio.Lock()

    async def ensure(self) -> None:
        """Raises EngineError when the header cannot be stored."""
        async with self._lock:
            if self._key not in self._mirror:
                await self._encode()

    async def _encode(self) -> None:
        request = EngineRequest(
            token_ids=self._token_ids,
            params=RequestParams(
                handle=uuid.uuid4().hex,
                capture=Capture(
                    key=self._key,
                    start=0,
                    num_tokens=len(self._token_ids),
                    prefix_keys=(),
                    fact=None,
                    planned_version=0,
                ),
            ),
            cache_salt=CacheSalts.once(),
            sampling=ONE_TOKEN,
        )
        with self._reports.follow(request.params.handle) as report:
            await run_to_end(self._engine, request)
            event = await report.first_of(CAPTURE_OUTCOMES, CAPTURE_WAIT_S)
        if event is not None and event.fields.get("reason") == "duplicate":
            self._mirror.add(MirroredChunk(self._key, len(self._token_ids), None, Tier.GPU))
        elif event is None or event.kind is not EventKind.CAPTURED:
            reason = event.fields.get("reason") if event else "no answer"
            raise EngineError(f"the header's chunk could not be stored: {reason}")
