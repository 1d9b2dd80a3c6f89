"""The workers that control knows, and calls to them.

Postgres holds who has joined and when; every replica of control reads it there. `WorkerClient`
speaks to one worker and turns its messages into the domain's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc.aio

from inferscale_core.errors import Unavailable
from inferscale_core.ids import RecipeHash, TenantId, UserId, WorkerId
from inferscale_core.memory.changes import UserState
from inferscale_core.memory.encoding import EncodeResult
from inferscale_core.memory.facts import NewFact
from inferscale_core.memory.routing import owner_of
from inferscale_core.memory.workers import Worker
from inferscale_core.rpc.channel import ChannelOptions, open_channel
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2
from inferscale_core.rpc.pb.inferscale.v1.worker_pb2_grpc import WorkerServiceStub
from inferscale_core.rpc.status import error_from
from inferscale_core.store import Store
from services.control.worker_messages import (
    Forgotten,
    HeldChunk,
    Purge,
    TokenCounts,
    encode_result_from_proto,
    held_chunk_from_proto,
    purge_from_proto,
    statement_to_proto,
    token_counts_from_proto,
)

CACHE_S = 0.5
"""How old the list of workers may be. Short against a lease, so that a worker that left or drains
is avoided soon; long against a chat, so that a busy replica asks twice a second and no more."""

ENCODE_LIMIT_S = 3600.0
"""A first import of 10,000 facts takes minutes on a GPU; what a cut-off job had done stays done."""

_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class UserAt:
    """A user of a tenant, and the state that a worker must have reached before it acts."""

    tenant_id: TenantId
    user_id: UserId
    state: UserState

    def to_proto(self) -> worker_pb2.UserRef:
        return worker_pb2.UserRef(
            tenant_id=self.tenant_id,
            user_id=self.user_id,
            memory_version=self.state.memory_version,
            kv_epoch=self.state.kv_epoch,
        )


class WorkerDirectory:
    """Who is alive, by the leases in Postgres. Belongs to one event loop.

    recipe_hashes: of the recipe that this control was given. Workers of a model with another one
    are on their way out: they serve a user until a worker with this one has the user's chunks.
    """

    def __init__(
        self, store: Store, *, lease_s: float, recipe_hashes: Collection[RecipeHash] = ()
    ) -> None:
        self._store = store
        self.lease_s = lease_s
        self._recipe_hashes = frozenset(recipe_hashes)
        self._workers: tuple[Worker, ...] = ()
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    def refresh_soon(self) -> None:
        """Forget what was read: a worker has just joined, left or begun to drain."""
        self._read_at = float("-inf")

    async def live(self) -> tuple[Worker, ...]:
        """Every worker whose lease holds, draining ones included."""
        async with self._reading:
            if time.monotonic() - self._read_at > CACHE_S:
                self._read_at = time.monotonic()  # Before: `refresh_soon` may come while it reads.
                try:
                    async with self._store.system() as tx:
                        self._workers = tuple(await tx.workers.live(self.lease_s))
                except BaseException:
                    self.refresh_soon()
                    raise
            return self._workers

    async def get(self, worker_id: WorkerId) -> Worker:
        """A worker that has joined, whether its lease holds or not. Raises NotFound."""
        async with self._store.system() as tx:
            return await tx.workers.get(worker_id)

    async def owner(
        self,
        tenant_id: TenantId,
        user_id: UserId,
        model: str,
        *,
        avoiding: Collection[WorkerId] = (),
    ) -> Worker:
        """The worker that serves this user with this model, once its recipe is the only one.

        Raises Unavailable when no worker of the model is alive, takes users and is not avoided.
        """
        owners = await self.owners(tenant_id, user_id, model, avoiding=avoiding)
        return owners[0]

    async def owners(
        self,
        tenant_id: TenantId,
        user_id: UserId,
        model: str,
        *,
        avoiding: Collection[WorkerId] = (),
    ) -> list[Worker]:
        """`owner`, and behind it, while the model's recipe changes, the one with the recipe before.

        Raises Unavailable as `owner` does.
        """
        owners = await self._find_owners(tenant_id, user_id, model, avoiding)
        if not owners:
            self.refresh_soon()
            owners = await self._find_owners(tenant_id, user_id, model, avoiding)
        if not owners:
            raise Unavailable(
                f"no worker of model {model!r} is available"
                f" ({len(avoiding)} did not answer); try again"
            )
        return owners

    def serve_alike(self, one: Worker, other: Worker) -> bool:
        """Whether both have control's recipe, or neither has: then users are shared out to both."""
        return (one.recipe_hash in self._recipe_hashes) == (
            other.recipe_hash in self._recipe_hashes
        )

    async def max_fact_tokens(self, models: Iterable[str]) -> int | None:
        """What the strictest live worker of these models takes. None when there is none."""
        served = set(models)
        limits = [w.max_fact_tokens for w in await self.live() if w.model in served]
        return min(limits, default=None)

    async def _find_owners(
        self, tenant_id: TenantId, user_id: UserId, model: str, avoiding: Collection[WorkerId]
    ) -> list[Worker]:
        workers = [
            worker
            for worker in await self.live()
            if worker.model == model and not worker.draining and worker.worker_id not in avoiding
        ]
        present = [w for w in workers if w.recipe_hash in self._recipe_hashes]
        before = [w for w in workers if w.recipe_hash not in self._recipe_hashes]
        owners = []
        for group in (present, before):
            worker_by_id = {worker.worker_id: worker for worker in group}
            owner = owner_of(tenant_id, user_id, worker_by_id)
            if owner is not None:
                owners.append(worker_by_id[owner])
        return owners


class WorkerChannels:
    """One channel for each address, kept until `close`. Belongs to one event loop."""

    def __init__(self, internal_token: str, options: ChannelOptions | None = None) -> None:
        self._internal_token = internal_token
        self._options = options or ChannelOptions()
        self._channel_by_address: dict[str, grpc.aio.Channel] = {}

    def client(self, worker: Worker) -> WorkerClient:
        channel = self._channel_by_address.get(worker.address)
        if channel is None:
            channel = open_channel(worker.address, self._internal_token, self._options)
            self._channel_by_address[worker.address] = channel
        return WorkerClient(worker, WorkerServiceStub(channel))

    async def close(self) -> None:
        channels = list(self._channel_by_address.values())
        self._channel_by_address.clear()
        await asyncio.gather(*(channel.close(None) for channel in channels))


class WorkerClient:
    """Calls to one worker. A failure is an error of ours: Unavailable when it cannot be reached.

    Closing a stream's iterator cancels the call, and so what the worker does for it.
    """

    def __init__(self, worker: Worker, stub: WorkerServiceStub) -> None:
        self.worker = worker
        self._stub = stub

    async def encode(self, user: UserAt) -> AsyncGenerator[EncodeResult, None]:
        """Encode what is missing for the user; one result for each fact, as it is ready."""
        request = worker_pb2.EncodeRequest(user=user.to_proto())
        call = self._stub.Encode(request, timeout=ENCODE_LIMIT_S)
        async with aclosing(_responses(call)) as responses:
            async for response in responses:
                yield encode_result_from_proto(self.worker.model, response)

    async def generate(
        self, request: worker_pb2.GenerateRequest, *, limit_s: float | None
    ) -> AsyncGenerator[worker_pb2.GenerateResponse, None]:
        """`limit_s`: what is left of the caller's own deadline."""
        call = self._stub.Generate(request, timeout=limit_s)
        async with aclosing(_responses(call)) as responses:
            async for response in responses:
                yield response

    async def forget(self, user: UserAt, what: Forgotten, *, limit_s: float) -> Purge:
        request = worker_pb2.ForgetRequest(
            user=user.to_proto(),
            fact_ids=what.fact_ids,
            dependant_fact_ids=what.dependants,
            turn_ids=what.turn_ids,
        )
        try:
            return purge_from_proto(await self._stub.Forget(request, timeout=limit_s))
        except grpc.aio.AioRpcError as exc:
            raise error_from(exc) from exc

    async def count_tokens(self, facts: Sequence[NewFact], *, limit_s: float) -> TokenCounts:
        """Tokens that each fact would have in a prompt of the worker's model."""
        request = worker_pb2.CountTokensRequest(
            statements=[statement_to_proto(fact) for fact in facts]
        )
        try:
            response = await self._stub.CountTokens(request, timeout=limit_s)
        except grpc.aio.AioRpcError as exc:
            raise error_from(exc) from exc
        return token_counts_from_proto(response)

    async def chunks_of(self, user: UserAt, *, limit_s: float) -> list[HeldChunk]:
        """The chunks of the user's facts that the worker holds now."""
        request = worker_pb2.CacheStatusRequest(user=user.to_proto())
        try:
            response = await self._stub.CacheStatus(request, timeout=limit_s)
        except grpc.aio.AioRpcError as exc:
            raise error_from(exc) from exc
        return [held_chunk_from_proto(chunk) for chunk in response.chunks]


async def _responses(
    call: grpc.aio.UnaryStreamCall[Any, _Response],
) -> AsyncGenerator[_Response, None]:
    """Ends the call whichever way the reader leaves."""
    try:
        async for response in call:
            yield response
    except grpc.aio.AioRpcError as exc:
        raise error_from(exc) from exc
    finally:
        call.cancel()
