"""WorkerService over the worker's use cases: convert, call, convert."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from inferscale_core.ids import FactId, TurnId
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2, worker_pb2_grpc
from inferscale_core.telemetry.logs import bind_for_task
from services.worker.activity import Activity
from services.worker.cache_status import CacheReport
from services.worker.convert import (
    encode_result_to_proto,
    event_to_proto,
    generate_from_proto,
    purged_to_proto,
    statement_from_proto,
    status_to_proto,
    user_from_proto,
)
from services.worker.encoding.user import EncodeUser
from services.worker.forget import Forget
from services.worker.generate import Generate
from services.worker.identity import WorkerIdentity
from services.worker.lengths import FactLengths


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """Closing a stream, as the server does when its client goes, ends the work behind it."""

    def __init__(
        self,
        identity: WorkerIdentity,
        encode: EncodeUser,
        generate: Generate,
        forget: Forget,
        cache: CacheReport,
        lengths: FactLengths,
        activity: Activity,
    ) -> None:
        self._identity = identity
        self._encode = encode
        self._generate = generate
        self._forget = forget
        self._cache = cache
        self._lengths = lengths
        self._activity = activity

    async def Encode(
        self, request: worker_pb2.EncodeRequest, context: Any
    ) -> AsyncGenerator[worker_pb2.EncodeResponse, None]:
        bind_for_task(tenant_id=request.user.tenant_id)
        with self._activity.open():
            async with aclosing(self._encode(user_from_proto(request.user))) as results:
                async for result in results:
                    yield encode_result_to_proto(result, self._identity)

    async def Generate(
        self, request: worker_pb2.GenerateRequest, context: Any
    ) -> AsyncGenerator[worker_pb2.GenerateResponse, None]:
        bind_for_task(tenant_id=request.user.tenant_id)
        with self._activity.open():
            async with aclosing(self._generate(generate_from_proto(request))) as events:
                async for event in events:
                    yield event_to_proto(event, self._identity)

    async def Forget(
        self, request: worker_pb2.ForgetRequest, context: Any
    ) -> worker_pb2.ForgetResponse:
        bind_for_task(tenant_id=request.user.tenant_id)
        with self._activity.open():
            purged = await self._forget(
                user_from_proto(request.user),
                [FactId(fact_id) for fact_id in request.fact_ids],
                [FactId(fact_id) for fact_id in request.dependant_fact_ids],
                [TurnId(turn_id) for turn_id in request.turn_ids],
            )
        return purged_to_proto(purged)

    async def CacheStatus(
        self, request: worker_pb2.CacheStatusRequest, context: Any
    ) -> worker_pb2.CacheStatusResponse:
        scope = user_from_proto(request.user).scope if request.HasField("user") else None
        return status_to_proto(self._cache.status(scope))

    async def CountTokens(
        self, request: worker_pb2.CountTokensRequest, context: Any
    ) -> worker_pb2.CountTokensResponse:
        counts = await self._lengths([statement_from_proto(one) for one in request.statements])
        return worker_pb2.CountTokensResponse(
            num_tokens=counts, max_fact_tokens=self._lengths.max_fact_tokens
        )
