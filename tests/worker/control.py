"""A control that keeps one user's facts in memory and answers ListChanges as the real one does."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inferscale_core.embedding.embedder import HostEmbedder, Vectors, checked_unit_vectors
from inferscale_core.errors import Unavailable
from inferscale_core.ids import TenantId, UserId
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.workers import EmbedderIdentity
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2, sync_pb2_grpc
from services.worker.users import UserAt

DIMENSION = 32


class WordEmbedder(HostEmbedder):
    """Texts are near when they share words. Deterministic, needs no model."""

    identity = EmbedderIdentity("words", "1", DIMENSION)
    max_tokens = 10_000

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[0] = 0.1
            for word in text.lower().replace(".", "").replace("?", "").split():
                row[1 + hashlib.sha256(word.encode()).digest()[0] % (DIMENSION - 1)] += 1
        return checked_unit_vectors(rows, DIMENSION)


@dataclass
class User:
    """facts and turns: live ones by id. removed: the version at which each id went."""

    version: int = 0
    kv_epoch: int = 0
    facts: dict[str, sync_pb2.FactChange] = field(default_factory=dict)
    turns: dict[str, sync_pb2.TurnChange] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)


class MemoryControl:
    """tenant_id and user_id name the user; `page_size` cuts answers into pages.

    with_disk_keys: every answer carries the user's disk key, as if the worker asked for it.
    dimension: of the vectors, for a worker with another embedder; they are padded.
    """

    def __init__(self, *, page_size: int = 5, dimension: int = DIMENSION) -> None:
        self._embedder = WordEmbedder()
        self._dimension = dimension
        self._page_size = page_size
        self.users: dict[tuple[str, str], User] = {}
        self.num_lists = 0
        self.is_down = False
        self.with_disk_keys = False

    def user(self, user_id: str = "robin", tenant_id: str = "acme") -> User:
        return self.users.setdefault((tenant_id, user_id), User())

    def at(self, user_id: str = "robin", tenant_id: str = "acme") -> UserAt:
        """The user at the present version, as control names it in a call."""
        user = self.user(user_id, tenant_id)
        return UserAt(TenantId(tenant_id), UserId(user_id), user.version)

    def add(
        self, fact_id: str, text: str, user_id: str = "robin", *, turn_ids: tuple[str, ...] = ()
    ) -> None:
        user = self.user(user_id)
        known = user.facts.get(fact_id)
        user.version += 1
        if known:
            user.kv_epoch += 1
        user.facts[fact_id] = sync_pb2.FactChange(
            fact_id=fact_id,
            revision=known.revision + 1 if known else 1,
            memory_version=user.version,
            text=text,
            embedding=self._vector(text),
            conversation_id="talk" if turn_ids else "",
            turn_ids=turn_ids,
        )

    def add_turn(self, turn_id: str, position: int, text: str, user_id: str = "robin") -> None:
        user = self.user(user_id)
        user.version += 1
        user.turns[turn_id] = sync_pb2.TurnChange(
            turn_id=turn_id,
            conversation_id="talk",
            position=position,
            speaker="Robin",
            text=text,
            memory_version=user.version,
        )

    def remove(self, identifier: str, user_id: str = "robin") -> None:
        user = self.user(user_id)
        user.version += 1
        user.kv_epoch += 1
        user.removed[identifier] = user.version
        user.facts.pop(identifier, None)
        user.turns.pop(identifier, None)

    def _vector(self, text: str) -> bytes:
        padded = np.zeros(self._dimension, dtype="<f4")
        padded[:DIMENSION] = self._embedder.embed([text])[0]
        return padded.tobytes()

    async def list_changes(
        self, tenant_id: TenantId, user_id: UserId, after_version: int
    ) -> list[sync_pb2.ListChangesResponse]:
        if self.is_down:
            raise Unavailable("control is away")
        self.num_lists += 1
        pages = self.pages(self.users.get((tenant_id, user_id), User()), after_version)
        if self.with_disk_keys:
            key = disk_key(tenant_id, user_id, pages[-1].kv_epoch)
            pages[-1].disk_key.kv_epoch, pages[-1].disk_key.secret = key.kv_epoch, key.secret
        return pages

    def pages(self, user: User, after_version: int) -> list[sync_pb2.ListChangesResponse]:
        facts = [fact for fact in user.facts.values() if fact.memory_version > after_version]
        size = self._page_size
        pages = [
            sync_pb2.ListChangesResponse(
                memory_version=user.version,
                kv_epoch=user.kv_epoch,
                facts=facts[begin : begin + size],
            )
            for begin in range(0, max(1, len(facts)), size)
        ]
        last = pages[-1]
        last.last = True
        last.turns.extend(t for t in user.turns.values() if t.memory_version > after_version)
        gone = [i for i, version in user.removed.items() if version > after_version]
        last.removed_fact_ids.extend(gone)
        last.removed_turn_ids.extend(gone)
        return pages


def disk_key(tenant_id: str, user_id: str, kv_epoch: int) -> DiskKey:
    """As control would draw it once for this epoch."""
    seed = f"{tenant_id} {user_id} {kv_epoch}"
    return DiskKey(kv_epoch, hashlib.sha256(seed.encode()).digest())


class SyncServicer(sync_pb2_grpc.SyncServiceServicer):
    """SyncService over a control in memory. joined: every request of a worker to join."""

    def __init__(self, control: MemoryControl) -> None:
        self._control = control
        self.joined: list[sync_pb2.JoinWorkerRequest] = []

    async def ListChanges(
        self, request: sync_pb2.ListChangesRequest, context: Any
    ) -> AsyncIterator[sync_pb2.ListChangesResponse]:
        self._control.with_disk_keys = request.with_disk_key
        for page in await self._control.list_changes(
            TenantId(request.tenant_id), UserId(request.user_id), request.after_version
        ):
            yield page

    async def JoinWorker(
        self, request: sync_pb2.JoinWorkerRequest, context: Any
    ) -> sync_pb2.JoinWorkerResponse:
        self.joined.append(request)
        return sync_pb2.JoinWorkerResponse(lease_s=1)
