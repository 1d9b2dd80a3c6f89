from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from inferscale_core.client import chat, convert, records
from inferscale_core.errors import (
    AlreadyDeleted,
    InferScaleError,
    InvalidInput,
    NotFound,
    QuotaExceeded,
)
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, common_pb2, memory_pb2, tenant_pb2
from inferscale_core.rpc.status import metadata_of

ENUMS: list[tuple[EnumDescriptor, type[StrEnum]]] = [
    (common_pb2.EncodeState.DESCRIPTOR, records.EncodeState),
    (common_pb2.Tier.DESCRIPTOR, records.Tier),
    (memory_pb2.PurgeState.DESCRIPTOR, records.PurgeState),
    (common_pb2.Serving.DESCRIPTOR, chat.Serving),
    (common_pb2.ServingMode.DESCRIPTOR, chat.ServingMode),
]
RECORDS: list[tuple[Descriptor, type]] = [
    (memory_pb2.Memory.DESCRIPTOR, records.Memory),
    (memory_pb2.EncodeStatus.DESCRIPTOR, records.EncodeStatus),
    (memory_pb2.Residency.DESCRIPTOR, records.Residency),
    (memory_pb2.NewMemory.DESCRIPTOR, records.NewMemory),
    (memory_pb2.DeletionReceipt.DESCRIPTOR, records.DeletionReceipt),
    (memory_pb2.ReceiptLine.DESCRIPTOR, records.ReceiptLine),
    (memory_pb2.ScoredMemory.DESCRIPTOR, records.ScoredMemory),
    (memory_pb2.Turn.DESCRIPTOR, records.Turn),
    (tenant_pb2.Tenant.DESCRIPTOR, records.Tenant),
    (tenant_pb2.Quotas.DESCRIPTOR, records.Quotas),
    (tenant_pb2.ApiKey.DESCRIPTOR, records.ApiKey),
    (common_pb2.Sampling.DESCRIPTOR, chat.Sampling),
    (common_pb2.ServedFact.DESCRIPTOR, chat.ServedFact),
    (common_pb2.Usage.DESCRIPTOR, chat.Usage),
    (common_pb2.Timings.DESCRIPTOR, chat.Timings),
    (chat_pb2.Retrieved.DESCRIPTOR, chat.Retrieved),
    (chat_pb2.Served.DESCRIPTOR, chat.Served),
    (chat_pb2.Delta.DESCRIPTOR, chat.Delta),
    (chat_pb2.Done.DESCRIPTOR, chat.Done),
]


@pytest.mark.parametrize(("sent", "ours"), ENUMS, ids=lambda enum: getattr(enum, "name", ""))
def test_the_client_knows_every_value_of_the_protocol(
    sent: EnumDescriptor, ours: type[StrEnum]
) -> None:
    names = [value.name for value in sent.values if value.number]
    prefix = names[0][: -len(next(iter(ours)).name)]
    assert names == [f"{prefix}{choice.name}" for choice in ours]


@pytest.mark.parametrize(("sent", "ours"), RECORDS, ids=lambda kind: getattr(kind, "name", ""))
def test_the_client_has_every_field_of_the_protocol(sent: Descriptor, ours: type) -> None:
    assert {field.name for field in fields(ours)} == {field.name for field in sent.fields}


def _filled(message: object, descriptor: Descriptor) -> None:
    """Give every plain field of a message a value of its own."""
    for field in descriptor.fields:
        number = field.number + 10
        if field.message_type is not None or field.enum_type is not None or field.is_repeated:
            continue
        kind = type(getattr(message, field.name))
        setattr(message, field.name, kind(number))


@pytest.mark.parametrize("event", ["usage", "timings"])
def test_no_count_or_time_is_taken_for_another(event: str) -> None:
    done = chat_pb2.Done()
    message = getattr(done, event)
    _filled(message, message.DESCRIPTOR)
    converted = convert.event_from_proto(chat_pb2.ChatResponse(done=done))
    assert isinstance(converted, chat.Done)
    for field in message.DESCRIPTOR.fields:
        assert getattr(getattr(converted, event), field.name) == getattr(message, field.name)


def test_a_score_is_a_mapping_of_first_tokens_and_the_answers_own() -> None:
    scored = chat_pb2.Scored(
        prompt_digest="p",
        answer_logprobs=[-1.0, -2.0],
        top_token_id=7,
        token_ids=[7, 9],
        logprobs=[-0.5, -3.0],
    )
    event = convert.event_from_proto(chat_pb2.ChatResponse(scored=scored))
    assert event == chat.Scored("p", (-1.0, -2.0), 7, {7: -0.5, 9: -3.0})
    assert convert.scoring_to_proto(None) is None


def test_no_field_of_a_memory_is_taken_for_another() -> None:
    message = memory_pb2.Memory(turn_ids=["t-1", "t-2"])
    _filled(message, message.DESCRIPTOR)
    for days, field in enumerate(("occurred_at", "created_at", "updated_at"), start=1):
        getattr(message, field).FromDatetime(datetime(2026, 3, days, tzinfo=UTC))
    memory = convert.memory_from_proto(message)
    for name in ("memory_id", "user_id", "text", "revision", "memory_version", "conversation_id"):
        assert getattr(memory, name) == getattr(message, name)
    assert memory.turn_ids == ("t-1", "t-2")
    assert memory.occurred_at == datetime(2026, 3, 1, tzinfo=UTC)
    assert memory.created_at == datetime(2026, 3, 2, tzinfo=UTC)
    assert memory.updated_at == datetime(2026, 3, 3, tzinfo=UTC)


def test_what_is_absent_is_none() -> None:
    memory = convert.memory_from_proto(memory_pb2.Memory())
    assert (memory.occurred_at, memory.conversation_id, memory.turn_ids) == (None, None, ())


def test_a_memory_is_encoded_when_every_model_has_done_it() -> None:
    done = memory_pb2.EncodeStatus(state=common_pb2.ENCODE_STATE_DONE)
    pending = memory_pb2.EncodeStatus(state=common_pb2.ENCODE_STATE_PENDING)
    states = [[done, done], [done, pending], []]
    messages = [memory_pb2.Memory(encode_status=state) for state in states]
    encoded = [convert.memory_from_proto(message).is_encoded for message in messages]
    assert encoded == [True, False, False]


def test_a_setting_that_is_not_given_is_not_sent() -> None:
    message = convert.sampling_to_proto(chat.Sampling(temperature=0.0))
    assert [field.name for field, _ in message.ListFields()] == ["temperature"]
    assert not message.HasField("seed")


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    local = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=3)))
    expected = Timestamp()
    expected.FromDatetime(datetime(2026, 3, 1, 9, tzinfo=UTC))
    assert convert.timestamp(local) == expected


def test_a_refused_item_is_a_typed_error() -> None:
    refused = memory_pb2.ItemError(code="invalid_input", field="text", message="is empty")
    item = convert.batch_item_from_proto(memory_pb2.BatchAddResult(error=refused))
    assert item.memory is None
    assert isinstance(item.error, InvalidInput)
    assert (item.error.field, item.error.problem) == ("text", "is empty")


@pytest.mark.parametrize(
    "error", [NotFound("turn", "t1"), QuotaExceeded("max_facts", 3), AlreadyDeleted("m-1")]
)
def test_a_refused_item_is_the_error_that_one_call_would_raise(error: InferScaleError) -> None:
    refused = memory_pb2.ItemError(code=error.code, message=str(error), metadata=metadata_of(error))
    item = convert.batch_item_from_proto(memory_pb2.BatchAddResult(error=refused))
    assert type(item.error) is type(error)
    assert vars(item.error) == vars(error)


def test_a_refusal_of_which_only_the_code_was_kept_has_that_code() -> None:
    refused = memory_pb2.ItemError(code="not_found", message="refused by the first request")
    item = convert.batch_item_from_proto(memory_pb2.BatchAddResult(error=refused))
    assert item.error is not None
    assert (item.error.code, str(item.error)) == ("not_found", "refused by the first request")


def test_a_refusal_of_a_newer_server_keeps_its_code() -> None:
    refused = memory_pb2.ItemError(code="too_odd", message="is odd")
    item = convert.batch_item_from_proto(memory_pb2.BatchAddResult(error=refused))
    assert type(item.error) is InferScaleError
    assert item.error.code == "too_odd"


def test_an_event_of_a_newer_server_is_skipped() -> None:
    assert convert.event_from_proto(chat_pb2.ChatResponse()) is None
