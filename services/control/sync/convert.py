"""Between SyncService's messages and the domain."""

from __future__ import annotations

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import ModelRevision, RecipeHash, WorkerId
from inferscale_core.memory.changes import ChangePage, EmbeddedFact
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import Turn
from inferscale_core.memory.workers import EmbedderIdentity, Worker
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from services.control.memory.convert import time_to_proto
from services.control.validation import check_identifier

MAX_ADDRESS_CHARACTERS = 256
MAX_REVISION_CHARACTERS = 256


def worker_from_proto(request: sync_pb2.JoinWorkerRequest) -> Worker:
    if request.max_fact_tokens < 1:
        raise InvalidInput("max_fact_tokens", "must be at least 1")
    revision = check_identifier("model_revision", request.model_revision, MAX_REVISION_CHARACTERS)
    return Worker(
        worker_id=WorkerId(check_identifier("worker_id", request.worker_id)),
        instance_id=check_identifier("instance_id", request.instance_id),
        address=check_identifier("address", request.address, MAX_ADDRESS_CHARACTERS),
        model=check_identifier("model", request.model),
        model_revision=ModelRevision(revision),
        recipe=check_identifier("recipe", request.recipe),
        recipe_hash=RecipeHash(check_identifier("recipe_hash", request.recipe_hash)),
        embedder=EmbedderIdentity(
            request.embedder.embedder_id, request.embedder.revision, request.embedder.dimension
        ),
        draining=request.draining,
        max_fact_tokens=request.max_fact_tokens,
    )


def page_to_proto(page: ChangePage) -> sync_pb2.ListChangesResponse:
    return sync_pb2.ListChangesResponse(
        memory_version=page.state.memory_version,
        kv_epoch=page.state.kv_epoch,
        facts=[_fact_to_proto(embedded) for embedded in page.facts],
        removed_fact_ids=page.removed_fact_ids,
        turns=[_turn_to_proto(turn) for turn in page.turns],
        removed_turn_ids=page.removed_turn_ids,
        last=page.last,
        disk_key=_disk_key_to_proto(page.disk_key) if page.disk_key else None,
    )


def _fact_to_proto(embedded: EmbeddedFact) -> sync_pb2.FactChange:
    fact = embedded.fact
    return sync_pb2.FactChange(
        fact_id=fact.fact_id,
        revision=fact.revision,
        memory_version=fact.memory_version,
        text=fact.text,
        occurred_at=time_to_proto(fact.occurred_at),
        embedding=embedded.embedding,
        conversation_id=fact.conversation_id or "",
        turn_ids=fact.turn_ids,
    )


def _turn_to_proto(turn: Turn) -> sync_pb2.TurnChange:
    return sync_pb2.TurnChange(
        turn_id=turn.turn_id,
        conversation_id=turn.conversation_id,
        position=turn.position,
        speaker=turn.speaker,
        text=turn.text,
        occurred_at=time_to_proto(turn.occurred_at),
        memory_version=turn.memory_version,
    )


def _disk_key_to_proto(disk_key: DiskKey) -> sync_pb2.DiskKey:
    return sync_pb2.DiskKey(kv_epoch=disk_key.kv_epoch, secret=disk_key.secret)
