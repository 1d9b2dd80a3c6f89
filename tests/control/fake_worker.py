"""A worker over real gRPC that holds users as a real one does and has no engine.

It brings its copy of a user to the asked version through SyncService, "encodes" each fact behind
its two predecessors, counts a token for each letter of a fact, and answers a chat by repeating the
facts it holds. What it was asked is kept, and a test may put another behaviour in place of each
method.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from inferscale_core.memory.workers import EmbedderIdentity
from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import (
    chat_pb2,
    common_pb2,
    sync_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import SyncServiceStub
from inferscale_core.rpc.server import RpcServer, ServerOptions
from inferscale_core.settings import TlsSettings
from services.tls import own_credentials, peer_options

Context = grpc.aio.ServicerContext[Any, Any]
Encoding = Callable[[worker_pb2.EncodeRequest], AsyncIterator[worker_pb2.EncodeResponse]]
Generating = Callable[[worker_pb2.GenerateRequest], AsyncIterator[worker_pb2.GenerateResponse]]
Forgetting = Callable[[worker_pb2.ForgetRequest], Awaitable[worker_pb2.ForgetResponse]]
Counting = Callable[[worker_pb2.CountTokensRequest], Awaitable[worker_pb2.CountTokensResponse]]

PREDECESSORS = 2
MAX_FACT_TOKENS = 40
_instances = itertools.count(1)


@dataclass
class HeldUser:
    """A copy of a user: facts by id, oldest version first, and the chunks that were encoded."""

    memory_version: int = 0
    facts: dict[str, sync_pb2.FactChange] = field(default_factory=dict)
    chunks: dict[str, worker_pb2.EncodeResponse] = field(default_factory=dict)


class FakeWorker(worker_pb2_grpc.WorkerServiceServicer):
    def __init__(
        self,
        control_address: str,
        internal_token: str,
        *,
        model: str,
        worker_id: str = "worker-0",
        recipe_hash: str = "r1",
        tls: TlsSettings | None = None,
    ) -> None:
        self.tls = tls or TlsSettings()
        self.worker_id = worker_id
        self.recipe_hash = recipe_hash
        self.model = model
        self.address = ""
        self.encode_requests: list[worker_pb2.EncodeRequest] = []
        self.generate_requests: list[worker_pb2.GenerateRequest] = []
        self.forget_requests: list[worker_pb2.ForgetRequest] = []
        self.count_requests: list[worker_pb2.CountTokensRequest] = []
        self.users: dict[str, HeldUser] = {}
        self.cancelled = 0
        self.on_encode: Encoding = self.encode
        self.on_generate: Generating = self.generate
        self.on_forget: Forgetting = self.forget
        self.on_count: Counting = self.count
        self._internal_token = internal_token
        self._channel = open_channel(control_address, internal_token, peer_options(self.tls))
        self._sync = SyncServiceStub(self._channel)
        self._server: RpcServer | None = None
        self._instance_id = ""

    async def start(self) -> None:
        """As a new instance, which holds nothing, at a port of its own that it keeps."""
        self.users.clear()
        self._instance_id = f"{self.worker_id}-{next(_instances)}"
        options = ServerOptions(credentials=own_credentials(self.tls))
        self._server = RpcServer(SharedTokens(internal=self._internal_token), options)
        self._server.add(
            worker_pb2.DESCRIPTOR, worker_pb2_grpc.add_WorkerServiceServicer_to_server, self
        )
        port = await self._server.start(self.address or "127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"

    async def stop(self) -> None:
        """Control finds it unreachable; its lease goes on."""
        server, self._server = self._server, None
        if server is not None:
            await server.drain(0)

    async def close(self) -> None:
        await self.stop()
        await self._channel.close(None)

    async def join(self, **changes: Any) -> sync_pb2.JoinWorkerResponse:
        embedder = EmbedderIdentity("words", "1", 8)
        request = sync_pb2.JoinWorkerRequest(
            worker_id=self.worker_id,
            instance_id=self._instance_id,
            address=self.address,
            model=self.model,
            model_revision=f"{self.model}@1",
            recipe="progressive-32",
            recipe_hash=self.recipe_hash,
            embedder=sync_pb2.EmbedderIdentity(
                embedder_id=embedder.embedder_id,
                revision=embedder.revision,
                dimension=embedder.dimension,
            ),
            max_fact_tokens=MAX_FACT_TOKENS,
        )
        for name, value in changes.items():
            if isinstance(value, sync_pb2.EmbedderIdentity):
                request.embedder.CopyFrom(value)
            else:
                setattr(request, name, value)
        return await self._sync.JoinWorker(request)

    async def synced(self, ref: worker_pb2.UserRef) -> HeldUser:
        """The copy of the user, at the asked version or later."""
        held = self.users.setdefault(f"{ref.tenant_id}/{ref.user_id}", HeldUser())
        if held.memory_version < ref.memory_version:
            request = sync_pb2.ListChangesRequest(
                tenant_id=ref.tenant_id, user_id=ref.user_id, after_version=held.memory_version
            )
            async for page in self._sync.ListChanges(request):
                for fact in page.facts:
                    held.facts.pop(fact.fact_id, None)
                    held.facts[fact.fact_id] = fact
                for fact_id in page.removed_fact_ids:
                    held.facts.pop(fact_id, None)
                if page.last:
                    held.memory_version = page.memory_version
        return held

    async def Encode(
        self, request: worker_pb2.EncodeRequest, context: Context
    ) -> AsyncIterator[worker_pb2.EncodeResponse]:
        self.encode_requests.append(request)
        async for response in self.on_encode(request):
            yield response

    async def Generate(
        self, request: worker_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[worker_pb2.GenerateResponse]:
        self.generate_requests.append(request)
        try:
            async for response in self.on_generate(request):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    async def Forget(
        self, request: worker_pb2.ForgetRequest, context: Context
    ) -> worker_pb2.ForgetResponse:
        self.forget_requests.append(request)
        return await self.on_forget(request)

    async def CountTokens(
        self, request: worker_pb2.CountTokensRequest, context: Context
    ) -> worker_pb2.CountTokensResponse:
        self.count_requests.append(request)
        return await self.on_count(request)

    async def CacheStatus(
        self, request: worker_pb2.CacheStatusRequest, context: Context
    ) -> worker_pb2.CacheStatusResponse:
        held = self.users.get(f"{request.user.tenant_id}/{request.user.user_id}", HeldUser())
        return worker_pb2.CacheStatusResponse(
            chunks=[
                worker_pb2.ChunkStatus(
                    fact=chunk.fact, tier=common_pb2.TIER_HOST, num_tokens=chunk.num_tokens
                )
                for chunk in held.chunks.values()
            ],
            memory_version=held.memory_version,
        )

    async def encode(
        self, request: worker_pb2.EncodeRequest
    ) -> AsyncIterator[worker_pb2.EncodeResponse]:
        held = await self.synced(request.user)
        facts = list(held.facts.values())
        for index, fact in enumerate(facts):
            earlier = facts[max(0, index - PREDECESSORS) : index]
            result = self.result(fact, earlier)
            known = held.chunks.get(fact.fact_id)
            result.already_resident = bool(known and known.chunk_digest == result.chunk_digest)
            held.chunks[fact.fact_id] = result
            yield result

    def result(
        self, fact: sync_pb2.FactChange, earlier: list[sync_pb2.FactChange]
    ) -> worker_pb2.EncodeResponse:
        saw = [worker_pb2.FactRef(fact_id=f.fact_id, revision=f.revision) for f in earlier]
        text = "".join(f"{ref.fact_id}:{ref.revision};" for ref in saw) + fact.text
        return worker_pb2.EncodeResponse(
            fact=worker_pb2.FactRef(fact_id=fact.fact_id, revision=fact.revision),
            state=common_pb2.ENCODE_STATE_DONE,
            chunk_digest=hashlib.sha256(text.encode()).hexdigest()[:32],
            num_tokens=len(fact.text.split()),
            prefix_facts=saw,
            model_revision=f"{self.model}@1",
            recipe_hash=self.recipe_hash,
            recipe="progressive-32",
        )

    async def generate(
        self, request: worker_pb2.GenerateRequest
    ) -> AsyncIterator[worker_pb2.GenerateResponse]:
        """One delta for each fact held, then done."""
        held = await self.synced(request.user)
        facts = list(held.facts.values())[-request.k :] if request.k else []
        resident = [held.chunks.get(fact.fact_id) for fact in facts]
        not_resident = [
            worker_pb2.FactRef(fact_id=fact.fact_id, revision=fact.revision)
            for fact, chunk in zip(facts, resident, strict=True)
            if chunk is None or chunk.fact.revision != fact.revision
        ]
        retrieved = chat_pb2.Retrieved(
            facts=[
                common_pb2.ServedFact(memory_id=f.fact_id, revision=f.revision, text=f.text)
                for f in facts
            ],
            memory_version=held.memory_version,
            worker_id=self.worker_id,
        )
        yield worker_pb2.GenerateResponse(
            response=chat_pb2.ChatResponse(retrieved=retrieved), not_resident=not_resident
        )
        for fact in facts:
            yield delta(fact.text + "\n")
        yield done()

    async def count(self, request: worker_pb2.CountTokensRequest) -> worker_pb2.CountTokensResponse:
        return worker_pb2.CountTokensResponse(
            num_tokens=[len(statement.text) for statement in request.statements],
            max_fact_tokens=MAX_FACT_TOKENS,
        )

    async def forget(self, request: worker_pb2.ForgetRequest) -> worker_pb2.ForgetResponse:
        held = self.users.get(f"{request.user.tenant_id}/{request.user.user_id}")
        if held is None:
            return worker_pb2.ForgetResponse()
        entries = [held.facts.pop(fact_id, None) for fact_id in request.fact_ids]
        own = [held.chunks.pop(fact_id, None) for fact_id in request.fact_ids]
        others = [held.chunks.pop(fact_id, None) for fact_id in request.dependant_fact_ids]
        return worker_pb2.ForgetResponse(
            user_cache=sum(entry is not None for entry in entries),
            arena_chunks=sum(chunk is not None for chunk in own + others),
            dependants=sum(chunk is not None for chunk in others),
        )


def delta(text: str) -> worker_pb2.GenerateResponse:
    return worker_pb2.GenerateResponse(
        response=chat_pb2.ChatResponse(delta=chat_pb2.Delta(text=text))
    )


def done(finish_reason: str = "stop") -> worker_pb2.GenerateResponse:
    return worker_pb2.GenerateResponse(
        response=chat_pb2.ChatResponse(done=chat_pb2.Done(finish_reason=finish_reason))
    )


async def endless(
    request: worker_pb2.GenerateRequest,
) -> AsyncIterator[worker_pb2.GenerateResponse]:
    """A word every 20 ms, as long as anybody listens."""
    for number in itertools.count():
        yield delta(f"{number} ")
        await asyncio.sleep(0.02)
