"""Comparing what the disk has of a user with what the user should have now.

What a worker finds on its disk at the start is served to nobody. With a user's first call it gets
the facts and the disk key of their epoch from control, and only then asks the engine to take up
those chunks on disk that the facts ask for. After an update or delete the same request seals what
is left under the new key.
"""

from __future__ import annotations

import uuid

from inferscale_core.errors import Unavailable
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.retrieval import UserSnapshot
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.vllm_connector.events import EventKind
from inferscale_core.vllm_connector.params import Adopt, RequestParams
from services.worker.engine.protocol import ONE_TOKEN, Engine, EngineRequest, run_to_end
from services.worker.engine.reports import Reports
from services.worker.salts import CacheSalts

_log = get_logger(__name__)

ADOPTED_WAIT_S = 10.0
"""250 records are compared in 25 ms; a disk that takes longer than this is not waited for."""


class EngineDisk:
    """The engine's disk tier, as the user cache sees it."""

    def __init__(
        self,
        engine: Engine,
        reports: Reports,
        secret: StoreSecret,
        control_prompt: tuple[int, ...],
    ) -> None:
        """control_prompt: any tokens; the engine takes commands with a request."""
        self._engine = engine
        self._reports = reports
        self._secret = secret
        self._control_prompt = control_prompt

    async def compare(self, snapshot: UserSnapshot, disk_key: DiskKey) -> None:
        """When it returns, the mirror shows the user's chunks on disk.

        Raises Unavailable when the engine does not answer; it may still do it then.
        """
        command = Adopt(
            scope=snapshot.scope,
            sealed_key=self._secret.seal(snapshot.scope, disk_key),
            wanted=tuple(spec.key for spec in snapshot.specs.values()),
            planned_version=snapshot.memory_version,
        )
        request = EngineRequest(
            token_ids=self._control_prompt,
            params=RequestParams(handle=uuid.uuid4().hex, adopt=command),
            cache_salt=CacheSalts.once(),
            sampling=ONE_TOKEN,
        )
        with self._reports.follow(request.params.handle) as report:
            await run_to_end(self._engine, request)
            event = await report.first_of({EventKind.ADOPTED}, ADOPTED_WAIT_S)
        if event is None:
            raise Unavailable("the engine has not compared the disk with the user's facts")
        if event.fields["num_chunks"]:
            _log.info("disk.adopted", chunks=event.fields["num_chunks"])
