"""Between WorkerService's messages and the worker's own words."""

from __future__ import annotations

from datetime import UTC
from functools import singledispatch

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import TenantId, UserId
from inferscale_core.kv.tiers import Tier
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.recipes import Recipe
from inferscale_core.prompt import ChatMessage
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, common_pb2, worker_pb2
from services.worker.cache_status import CacheStatus
from services.worker.encoding.user import EncodeResult
from services.worker.engine.mirror import MirroredChunk
from services.worker.engine.protocol import SamplingOptions
from services.worker.forget import Purged
from services.worker.generate import (
    ChatEvent,
    Delta,
    Done,
    FactServing,
    GenerateCommand,
    Retrieved,
    Scored,
    Scoring,
    Served,
    Timings,
)
from services.worker.identity import WorkerIdentity
from services.worker.lengths import Statement
from services.worker.served import ServedTokens, Serving
from services.worker.users import UserAt

_SERVING = {
    Serving.INJECTED: common_pb2.SERVING_INJECTED,
    Serving.NATIVE_HIT: common_pb2.SERVING_NATIVE_HIT,
    Serving.PREFILLED: common_pb2.SERVING_PREFILLED,
}
_TIER = {
    Tier.GPU: common_pb2.TIER_GPU,
    Tier.HOST: common_pb2.TIER_HOST,
    Tier.DISK: common_pb2.TIER_DISK,
}


def user_from_proto(user: worker_pb2.UserRef) -> UserAt:
    """Raises InvalidInput without a tenant or a user."""
    if not user.tenant_id or not user.user_id:
        raise InvalidInput("user", "names no tenant or no user")
    return UserAt(TenantId(user.tenant_id), UserId(user.user_id), user.memory_version)


def statement_from_proto(statement: worker_pb2.Statement) -> Statement:
    moment = statement.occurred_at
    is_dated = statement.HasField("occurred_at")
    return Statement(statement.text, moment.ToDatetime(tzinfo=UTC) if is_dated else None)


def generate_from_proto(request: worker_pb2.GenerateRequest) -> GenerateCommand:
    if not request.messages:
        raise InvalidInput("messages", "there are none")
    return GenerateCommand(
        user=user_from_proto(request.user),
        messages=tuple(ChatMessage(m.role, m.content) for m in request.messages),
        k=request.k,
        sampling=_sampling(request.sampling),
        inject=request.mode != common_pb2.SERVING_MODE_TEXT,
        timed=request.timed,
        text_facts=request.text_facts if request.HasField("text_facts") else None,
        scoring=_scoring(request.scoring) if request.HasField("scoring") else None,
    )


def _scoring(scoring: chat_pb2.Scoring) -> Scoring:
    return Scoring(scoring.answer, tuple(scoring.compared_token_ids))


def _sampling(sampling: common_pb2.Sampling) -> SamplingOptions:
    default = SamplingOptions()
    return SamplingOptions(
        temperature=sampling.temperature,
        top_p=sampling.top_p if sampling.HasField("top_p") else default.top_p,
        max_tokens=sampling.max_tokens if sampling.HasField("max_tokens") else default.max_tokens,
        min_tokens=sampling.min_tokens,
        seed=sampling.seed if sampling.HasField("seed") else None,
        stop=tuple(sampling.stop),
    )


@singledispatch
def _event_to_proto(event: ChatEvent, identity: WorkerIdentity) -> chat_pb2.ChatResponse:
    raise AssertionError(f"no message for {type(event).__name__}")


@_event_to_proto.register
def _(event: Retrieved, identity: WorkerIdentity) -> chat_pb2.ChatResponse:
    return chat_pb2.ChatResponse(
        retrieved=chat_pb2.Retrieved(
            facts=[_fact_to_proto(fact) for fact in event.facts],
            memory_version=event.memory_version,
            worker_id=identity.worker_id,
            model_revision=identity.model_revision,
            recipe=identity.recipe.name,
            question_tokens=event.question_tokens,
            searched_tokens=event.searched_tokens,
        )
    )


@_event_to_proto.register
def _(event: Served, identity: WorkerIdentity) -> chat_pb2.ChatResponse:
    return chat_pb2.ChatResponse(
        served=chat_pb2.Served(
            facts=[_fact_to_proto(fact) for fact in event.facts],
            usage=_usage(event.tokens, 0),
            timings=_timings(event.timings),
        )
    )


@_event_to_proto.register
def _(event: Scored, identity: WorkerIdentity) -> chat_pb2.ChatResponse:
    first = event.likelihood.first
    return chat_pb2.ChatResponse(
        scored=chat_pb2.Scored(
            prompt_digest=event.prompt_digest,
            answer_logprobs=event.likelihood.answer_logprobs,
            top_token_id=first.token_id,
            token_ids=first.logprobs.keys(),
            logprobs=first.logprobs.values(),
        )
    )


@_event_to_proto.register
def _(event: Delta, identity: WorkerIdentity) -> chat_pb2.ChatResponse:
    return chat_pb2.ChatResponse(delta=chat_pb2.Delta(text=event.text))


@_event_to_proto.register
def _(event: Done, identity: WorkerIdentity) -> chat_pb2.ChatResponse:
    return chat_pb2.ChatResponse(
        done=chat_pb2.Done(
            finish_reason=event.finish_reason,
            usage=_usage(event.tokens, event.completion_tokens),
            timings=_timings(event.timings),
        )
    )


def event_to_proto(event: ChatEvent, identity: WorkerIdentity) -> worker_pb2.GenerateResponse:
    missing = event.not_resident if isinstance(event, Retrieved) else ()
    return worker_pb2.GenerateResponse(
        response=_event_to_proto(event, identity),
        not_resident=[_ref_to_proto(fact) for fact in missing],
    )


def encode_result_to_proto(
    result: EncodeResult, identity: WorkerIdentity
) -> worker_pb2.EncodeResponse:
    failed, done = common_pb2.ENCODE_STATE_FAILED, common_pb2.ENCODE_STATE_DONE
    recipe: Recipe = identity.recipe
    return worker_pb2.EncodeResponse(
        fact=_ref_to_proto(result.fact),
        state=failed if result.reason else done,
        reason=result.reason or "",
        chunk_digest=result.chunk_digest,
        num_tokens=result.num_tokens,
        prefix_facts=[_ref_to_proto(fact) for fact in result.prefix_facts],
        prefix_turn_ids=list(result.prefix_turn_ids),
        saw_as_text=result.saw_as_text,
        already_resident=result.already_resident,
        model_revision=identity.model_revision,
        recipe_hash=recipe.hash,
        recipe=recipe.name,
    )


def purged_to_proto(purged: Purged) -> worker_pb2.ForgetResponse:
    return worker_pb2.ForgetResponse(
        user_cache=purged.user_cache,
        arena_chunks=purged.copies.get(Tier.GPU, 0),
        host_chunks=purged.copies.get(Tier.HOST, 0),
        disk_chunks=purged.copies.get(Tier.DISK, 0),
        dependants=purged.dependants,
        pending_chunks=purged.pending.get(Tier.GPU, 0),
        pending_host_chunks=purged.pending.get(Tier.HOST, 0),
        pending_disk_chunks=purged.pending.get(Tier.DISK, 0),
    )


def status_to_proto(status: CacheStatus) -> worker_pb2.CacheStatusResponse:
    return worker_pb2.CacheStatusResponse(
        chunks=[_chunk_to_proto(c, c.fact) for c in status.chunks if c.fact is not None],
        resident_chunks=status.resident_chunks,
        resident_bytes=status.tiers[0].resident_bytes,
        capacity_bytes=status.tiers[0].capacity_bytes,
        pinned_bytes=status.tiers[0].pinned_bytes,
        evictions=status.evictions,
        memory_version=status.memory_version,
        min_injected_tokens=status.min_injected_tokens,
        tiers=[
            worker_pb2.TierUsage(
                tier=_TIER[tier.tier],
                resident_bytes=tier.resident_bytes,
                capacity_bytes=tier.capacity_bytes,
                pinned_bytes=tier.pinned_bytes,
            )
            for tier in status.tiers
        ],
    )


def _chunk_to_proto(chunk: MirroredChunk, fact: FactRef) -> worker_pb2.ChunkStatus:
    return worker_pb2.ChunkStatus(
        fact=_ref_to_proto(fact),
        tier=_TIER[chunk.tier],
        num_tokens=chunk.num_tokens,
        chunk_digest=chunk.key.rpartition("/")[2],
    )


def _ref_to_proto(fact: FactRef) -> worker_pb2.FactRef:
    return worker_pb2.FactRef(fact_id=fact.fact_id, revision=fact.revision)


def _fact_to_proto(fact: FactServing) -> common_pb2.ServedFact:
    return common_pb2.ServedFact(
        memory_id=fact.fact.fact_id,
        revision=fact.fact.revision,
        score=fact.score,
        num_tokens=fact.num_tokens,
        serving=_SERVING[fact.serving],
        text=fact.text,
    )


def _usage(tokens: ServedTokens, completion_tokens: int) -> common_pb2.Usage:
    facts = tokens.facts
    return common_pb2.Usage(
        prompt_tokens=tokens.num_prompt_tokens,
        injected_tokens=tokens.injected_tokens,
        native_hit_tokens=tokens.native_tokens,
        prefilled_tokens=tokens.prefilled_tokens,
        completion_tokens=completion_tokens,
        facts_injected=facts[Serving.INJECTED],
        facts_native_hit=facts[Serving.NATIVE_HIT],
        facts_prefilled=facts[Serving.PREFILLED],
    )


def _timings(timings: Timings) -> common_pb2.Timings:
    return common_pb2.Timings(
        embed_ms=timings.embed_ms,
        retrieve_ms=timings.retrieve_ms,
        plan_ms=timings.plan_ms,
        queue_ms=timings.queue_ms,
        inject_ms=timings.inject_ms,
        prefill_ms=timings.prefill_ms,
        first_token_ms=timings.first_token_ms,
        total_ms=timings.total_ms,
        sync_ms=timings.sync_ms,
    )
