"""Between WorkerService's messages and the domain, as control sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inferscale_core.errors import EngineError
from inferscale_core.ids import FactId, ModelRevision, RecipeHash, TurnId
from inferscale_core.memory.deletion import WORKER_HOLDERS, Holder
from inferscale_core.memory.encoding import EncodeResult, EncodeState, EncodeTarget
from inferscale_core.memory.facts import FactRef, NewFact
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, worker_pb2

_RESULT_STATE = {
    common_pb2.ENCODE_STATE_DONE: EncodeState.DONE,
    common_pb2.ENCODE_STATE_FAILED: EncodeState.FAILED,
}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a worker must drop. `dependants`: facts whose chunks had seen what is gone."""

    fact_ids: tuple[FactId, ...] = ()
    dependants: tuple[FactId, ...] = ()
    turn_ids: tuple[TurnId, ...] = ()


@dataclass(frozen=True, slots=True)
class Purge:
    """A worker's answer: entries dropped by holder, and holders whose pages are still being read.

    A chunk is counted once, when it is dropped; asked again, the worker counts nothing.
    """

    dropped: Mapping[Holder, int]
    pending: frozenset[Holder] = frozenset()


@dataclass(frozen=True, slots=True)
class HeldChunk:
    """`tier`: a value of the API's enum Tier."""

    fact: FactRef
    tier: common_pb2.Tier


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """One number for each fact that was asked about, and the most that the worker encodes."""

    num_tokens: tuple[int, ...]
    max_fact_tokens: int


def statement_to_proto(fact: NewFact) -> worker_pb2.Statement:
    statement = worker_pb2.Statement(text=fact.text)
    if fact.occurred_at is not None:
        statement.occurred_at.FromDatetime(fact.occurred_at)
    return statement


def token_counts_from_proto(response: worker_pb2.CountTokensResponse) -> TokenCounts:
    return TokenCounts(tuple(response.num_tokens), response.max_fact_tokens)


def encode_result_from_proto(model: str, response: worker_pb2.EncodeResponse) -> EncodeResult:
    """Raises EngineError for a state that is no result."""
    state = _RESULT_STATE.get(response.state)
    if state is None:
        raise EngineError(f"a worker of model {model!r} gave encode state {response.state}")
    return EncodeResult(
        fact=fact_ref_from_proto(response.fact),
        target=EncodeTarget(
            model,
            ModelRevision(response.model_revision),
            response.recipe,
            RecipeHash(response.recipe_hash),
        ),
        state=state,
        reason=response.reason,
        chunk_digest=response.chunk_digest,
        num_tokens=response.num_tokens,
        prefix_facts=tuple(fact_ref_from_proto(fact) for fact in response.prefix_facts),
        prefix_turn_ids=tuple(TurnId(turn_id) for turn_id in response.prefix_turn_ids),
        saw_as_text=response.saw_as_text,
    )


def purge_from_proto(response: worker_pb2.ForgetResponse) -> Purge:
    counts = (
        response.user_cache,
        response.arena_chunks,
        response.host_chunks,
        response.disk_chunks,
    )
    counted = dict(zip(WORKER_HOLDERS, counts, strict=True))
    waiting = {
        Holder.ARENA: response.pending_chunks,
        Holder.HOST: response.pending_host_chunks,
        Holder.DISK: response.pending_disk_chunks,
    }
    return Purge(counted, frozenset(holder for holder, count in waiting.items() if count))


def held_chunk_from_proto(chunk: worker_pb2.ChunkStatus) -> HeldChunk:
    return HeldChunk(fact_ref_from_proto(chunk.fact), chunk.tier)


def fact_ref_from_proto(fact: worker_pb2.FactRef) -> FactRef:
    return FactRef(FactId(fact.fact_id), fact.revision)
