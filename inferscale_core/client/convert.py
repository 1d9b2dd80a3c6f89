"""Between the client's values and the protocol's messages. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from inferscale_core.client import chat, records
from inferscale_core.errors import InferScaleError, InvalidInput
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, common_pb2, memory_pb2, tenant_pb2
from inferscale_core.rpc.status import error_of

_Choice = TypeVar("_Choice", bound=StrEnum)


def new_memory_to_proto(memory: records.NewMemory) -> memory_pb2.NewMemory:
    return memory_pb2.NewMemory(
        text=memory.text,
        occurred_at=timestamp(memory.occurred_at),
        conversation_id=memory.conversation_id or "",
        turn_ids=memory.turn_ids,
    )


def turn_to_proto(turn: records.Turn) -> memory_pb2.Turn:
    return memory_pb2.Turn(
        turn_id=turn.turn_id or "",
        speaker=turn.speaker,
        text=turn.text,
        occurred_at=timestamp(turn.occurred_at),
    )


def message_to_proto(message: chat.ChatMessage) -> common_pb2.Message:
    return common_pb2.Message(role=message.role, content=message.content)


def sampling_to_proto(sampling: chat.Sampling) -> common_pb2.Sampling:
    return common_pb2.Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        seed=sampling.seed,
        stop=sampling.stop,
    )


def mode_to_proto(mode: chat.ServingMode) -> common_pb2.ServingMode:
    value: common_pb2.ServingMode = getattr(common_pb2, f"SERVING_MODE_{mode.name}")
    return value


def quotas_to_proto(quotas: records.Quotas | None) -> tenant_pb2.Quotas | None:
    if quotas is None:
        return None
    return tenant_pb2.Quotas(
        max_facts=quotas.max_facts, max_facts_per_user=quotas.max_facts_per_user
    )


def timestamp(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return stamp


def memory_from_proto(memory: memory_pb2.Memory) -> records.Memory:
    return records.Memory(
        memory_id=memory.memory_id,
        user_id=memory.user_id,
        text=memory.text,
        revision=memory.revision,
        memory_version=memory.memory_version,
        created_at=_moment(memory, "created_at"),
        updated_at=_moment(memory, "updated_at"),
        occurred_at=_moment(memory, "occurred_at"),
        conversation_id=memory.conversation_id or None,
        turn_ids=tuple(memory.turn_ids),
        encode_status=tuple(_encode_status(status) for status in memory.encode_status),
        residency=tuple(_residency(residency) for residency in memory.residency),
    )


def batch_item_from_proto(result: memory_pb2.BatchAddResult) -> records.BatchItem:
    stored = result.WhichOneof("result") == "memory"
    return records.BatchItem(
        memory=memory_from_proto(result.memory) if stored else None,
        error=None if stored else _item_error(result.error),
        already_existed=result.already_existed,
    )


def receipt_from_proto(receipt: memory_pb2.DeletionReceipt) -> records.DeletionReceipt:
    return records.DeletionReceipt(
        receipt_id=receipt.receipt_id,
        memory_id=receipt.memory_id,
        deleted_at=_moment(receipt, "deleted_at"),
        lines=tuple(_receipt_line(line) for line in receipt.lines),
        source_turn_ids=tuple(receipt.source_turn_ids),
        dependant_memory_ids=tuple(receipt.dependant_memory_ids),
    )


def scored_from_proto(result: memory_pb2.ScoredMemory) -> records.ScoredMemory:
    return records.ScoredMemory(memory_from_proto(result.memory), result.score)


def tenant_from_proto(tenant: tenant_pb2.Tenant) -> records.Tenant:
    return records.Tenant(
        tenant_id=tenant.tenant_id,
        display_name=tenant.display_name,
        models=tuple(tenant.models),
        quotas=records.Quotas(tenant.quotas.max_facts, tenant.quotas.max_facts_per_user),
        created_at=_moment(tenant, "created_at"),
    )


def api_key_from_proto(key: tenant_pb2.ApiKey) -> records.ApiKey:
    return records.ApiKey(
        key_id=key.key_id,
        label=key.label,
        created_at=_moment(key, "created_at"),
        revoked_at=_moment(key, "revoked_at"),
    )


def scoring_to_proto(scoring: chat.Scoring | None) -> chat_pb2.Scoring | None:
    if scoring is None:
        return None
    return chat_pb2.Scoring(
        answer=scoring.answer, compared_token_ids=list(scoring.compared_token_ids)
    )


def event_from_proto(response: chat_pb2.ChatResponse) -> chat.ChatEvent | None:
    """None for an event that this version of the client does not know."""
    match response.WhichOneof("event"):
        case "retrieved":
            found = response.retrieved
            return chat.Retrieved(
                facts=_served_facts(found.facts),
                memory_version=found.memory_version,
                worker_id=found.worker_id,
                model_revision=found.model_revision,
                recipe=found.recipe,
                question_tokens=found.question_tokens,
                searched_tokens=found.searched_tokens,
            )
        case "served":
            served = response.served
            facts = _served_facts(served.facts)
            return chat.Served(facts, _usage(served.usage), _timings(served.timings))
        case "scored":
            scored = response.scored
            return chat.Scored(
                prompt_digest=scored.prompt_digest,
                answer=tuple(scored.answer_logprobs),
                top_token_id=scored.top_token_id,
                first=dict(zip(scored.token_ids, scored.logprobs, strict=True)),
            )
        case "delta":
            return chat.Delta(response.delta.text)
        case "done":
            done = response.done
            return chat.Done(done.finish_reason, _usage(done.usage), _timings(done.timings))
    return None


def _encode_status(status: memory_pb2.EncodeStatus) -> records.EncodeStatus:
    return records.EncodeStatus(
        model_revision=status.model_revision,
        recipe=status.recipe,
        state=_required(records.EncodeState, common_pb2.EncodeState.Name(status.state)),
        reason=status.reason,
        num_tokens=status.num_tokens,
        updated_at=_moment(status, "updated_at"),
    )


def _residency(residency: memory_pb2.Residency) -> records.Residency:
    return records.Residency(
        worker_id=residency.worker_id,
        model_revision=residency.model_revision,
        recipe=residency.recipe,
        tier=_required(records.Tier, common_pb2.Tier.Name(residency.tier)),
    )


def _receipt_line(line: memory_pb2.ReceiptLine) -> records.ReceiptLine:
    return records.ReceiptLine(
        holder=line.holder,
        worker_id=line.worker_id or None,
        state=_required(records.PurgeState, memory_pb2.PurgeState.Name(line.state)),
        count=line.count,
        updated_at=_moment(line, "updated_at"),
    )


def _item_error(error: memory_pb2.ItemError) -> InferScaleError:
    if error.code == InvalidInput.code:
        return InvalidInput(error.field, error.message)
    return error_of(error.code, dict(error.metadata), error.message)


def _served_facts(facts: Iterable[common_pb2.ServedFact]) -> tuple[chat.ServedFact, ...]:
    return tuple(
        chat.ServedFact(
            memory_id=fact.memory_id,
            revision=fact.revision,
            score=fact.score,
            num_tokens=fact.num_tokens,
            serving=_choice(chat.Serving, common_pb2.Serving.Name(fact.serving)),
            text=fact.text,
        )
        for fact in facts
    )


def _usage(usage: common_pb2.Usage) -> chat.Usage:
    return chat.Usage(
        prompt_tokens=usage.prompt_tokens,
        injected_tokens=usage.injected_tokens,
        native_hit_tokens=usage.native_hit_tokens,
        prefilled_tokens=usage.prefilled_tokens,
        completion_tokens=usage.completion_tokens,
        facts_injected=usage.facts_injected,
        facts_native_hit=usage.facts_native_hit,
        facts_prefilled=usage.facts_prefilled,
    )


def _timings(timings: common_pb2.Timings) -> chat.Timings:
    return chat.Timings(
        sync_ms=timings.sync_ms,
        embed_ms=timings.embed_ms,
        retrieve_ms=timings.retrieve_ms,
        plan_ms=timings.plan_ms,
        queue_ms=timings.queue_ms,
        inject_ms=timings.inject_ms,
        prefill_ms=timings.prefill_ms,
        first_token_ms=timings.first_token_ms,
        total_ms=timings.total_ms,
    )


def _choice(choices: type[_Choice], name: str) -> _Choice | None:
    """`ENCODE_STATE_DONE` to `EncodeState.DONE`; None for UNSPECIFIED and for what is not known."""
    return next((choice for choice in choices if name.endswith(f"_{choice.name}")), None)


def _required(choices: type[_Choice], name: str) -> _Choice:
    choice = _choice(choices, name)
    if choice is None:
        raise InferScaleError(f"the server sent {name}, which this client does not know")
    return choice


def _moment(message: object, field: str) -> datetime | None:
    has_field = message.HasField(field)  # type: ignore[attr-defined]
    stamp: Timestamp = getattr(message, field)
    return stamp.ToDatetime(UTC) if has_field else None
