"""Between MemoryService's messages and the domain. What is read here is also checked here."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import ConversationId, FactId, RequestId, TurnId, UserId
from inferscale_core.memory.deletion import DeletionReceipt, PurgeState, ReceiptLine
from inferscale_core.memory.encoding import EncodeState, EncodeStatus
from inferscale_core.memory.facts import NewFact, NewTurn
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, memory_pb2
from services.control.memory.answers import BatchItem, Memory, Refusal, Residency
from services.control.memory.commands import (
    AddMemory,
    AppendTurns,
    BatchAddMemories,
    DeleteMemory,
    DeleteTurns,
    ListMemories,
    SearchMemories,
    UpdateMemory,
)
from services.control.validation import (
    MAX_REFERENCE_ID,
    MAX_REQUEST_ID,
    MAX_USER_ID,
    check_count,
    check_identifier,
    check_range,
    check_text,
)

MAX_FACT_CHARACTERS = 8_000
MAX_QUERY_CHARACTERS = 8_000
MAX_TURN_CHARACTERS = 32_000
MAX_SPEAKER_CHARACTERS = 128
MAX_BATCH_ITEMS = 500
MAX_TURN_ITEMS = 500
MAX_SOURCE_TURNS = 100
MAX_PAGE = 500
DEFAULT_PAGE = 100
MAX_SEARCH_K = 200
DEFAULT_SEARCH_K = 20

_PURGE_STATE = {
    PurgeState.PURGED: memory_pb2.PURGE_STATE_PURGED,
    PurgeState.PENDING: memory_pb2.PURGE_STATE_PENDING,
}
_ENCODE_STATE = {
    EncodeState.PENDING: common_pb2.ENCODE_STATE_PENDING,
    EncodeState.DONE: common_pb2.ENCODE_STATE_DONE,
    EncodeState.FAILED: common_pb2.ENCODE_STATE_FAILED,
    EncodeState.DROPPED: common_pb2.ENCODE_STATE_DROPPED,
}


def user_from_proto(user_id: str) -> UserId:
    return UserId(check_identifier("user_id", user_id, MAX_USER_ID))


def fact_id_from_proto(memory_id: str) -> FactId:
    return FactId(check_identifier("memory_id", memory_id))


def add_memory_from_proto(request: memory_pb2.AddMemoryRequest) -> AddMemory:
    return AddMemory(
        request_id=_request_id(request.request_id),
        content=_content_of(request),
        user_id=user_from_proto(request.user_id),
        fact=_new_fact("memory", request.memory),
    )


def batch_add_from_proto(request: memory_pb2.BatchAddMemoriesRequest) -> BatchAddMemories:
    check_count("memories", request.memories, minimum=1, maximum=MAX_BATCH_ITEMS)
    return BatchAddMemories(
        request_id=_request_id(request.request_id),
        content=_content_of(request),
        user_id=user_from_proto(request.user_id),
        items=tuple(
            _new_fact_or_problem(f"memories[{index}]", item)
            for index, item in enumerate(request.memories)
        ),
    )


def list_memories_from_proto(request: memory_pb2.ListMemoriesRequest) -> ListMemories:
    size = request.page_size or DEFAULT_PAGE
    user_id = user_from_proto(request.user_id)
    return ListMemories(
        user_id=user_id,
        page_size=check_range("page_size", size, minimum=1, maximum=MAX_PAGE),
        after_version=version_of_page_token(user_id, request.page_token),
    )


def update_memory_from_proto(request: memory_pb2.UpdateMemoryRequest) -> UpdateMemory:
    return UpdateMemory(
        request_id=_request_id(request.request_id),
        content=_content_of(request),
        user_id=user_from_proto(request.user_id),
        fact_id=fact_id_from_proto(request.memory_id),
        expected_revision=request.expected_revision or None,
        statement=NewFact(
            text=check_text("text", request.text, MAX_FACT_CHARACTERS),
            occurred_at=time_from_proto("occurred_at", request),
        ),
    )


def delete_memory_from_proto(request: memory_pb2.DeleteMemoryRequest) -> DeleteMemory:
    return DeleteMemory(
        request_id=_request_id(request.request_id),
        content=_content_of(request),
        user_id=user_from_proto(request.user_id),
        fact_id=fact_id_from_proto(request.memory_id),
        purge_sources=request.purge_sources,
    )


def search_from_proto(request: memory_pb2.SearchMemoriesRequest) -> SearchMemories:
    return SearchMemories(
        user_id=user_from_proto(request.user_id),
        query=check_text("query", request.query, MAX_QUERY_CHARACTERS),
        k=check_range("k", request.k or DEFAULT_SEARCH_K, minimum=1, maximum=MAX_SEARCH_K),
        min_memory_version=request.min_memory_version,
    )


def append_turns_from_proto(request: memory_pb2.AppendTurnsRequest) -> AppendTurns:
    check_count("turns", request.turns, minimum=1, maximum=MAX_TURN_ITEMS)
    turns = tuple(_new_turn(f"turns[{index}]", turn) for index, turn in enumerate(request.turns))
    _check_distinct("turns", [turn.turn_id for turn in turns if turn.turn_id])
    return AppendTurns(
        request_id=_request_id(request.request_id),
        content=_content_of(request),
        user_id=user_from_proto(request.user_id),
        conversation_id=ConversationId(
            check_identifier("conversation_id", request.conversation_id)
        ),
        turns=turns,
    )


def delete_turns_from_proto(request: memory_pb2.DeleteTurnsRequest) -> DeleteTurns:
    check_count("turn_ids", request.turn_ids, minimum=0, maximum=MAX_TURN_ITEMS)
    turn_ids = tuple(
        TurnId(check_identifier(f"turn_ids[{index}]", turn_id))
        for index, turn_id in enumerate(request.turn_ids)
    )
    return DeleteTurns(
        request_id=_request_id(request.request_id),
        content=_content_of(request),
        user_id=user_from_proto(request.user_id),
        conversation_id=ConversationId(
            check_identifier("conversation_id", request.conversation_id)
        ),
        turn_ids=turn_ids or None,
    )


def memory_to_proto(memory: Memory) -> memory_pb2.Memory:
    fact = memory.fact
    return memory_pb2.Memory(
        memory_id=fact.fact_id,
        user_id=fact.user_id,
        text=fact.text,
        revision=fact.revision,
        memory_version=fact.memory_version,
        occurred_at=time_to_proto(fact.occurred_at),
        created_at=time_to_proto(fact.created_at),
        updated_at=time_to_proto(fact.updated_at),
        conversation_id=fact.conversation_id or "",
        turn_ids=fact.turn_ids,
        encode_status=[_status_to_proto(status) for status in memory.statuses],
        residency=[_residency_to_proto(place) for place in memory.residency],
    )


def batch_item_to_proto(item: BatchItem) -> memory_pb2.BatchAddResult:
    if isinstance(item.outcome, Refusal):
        refusal = item.outcome
        error = memory_pb2.ItemError(
            code=refusal.code,
            field=refusal.field,
            message=refusal.message,
            metadata=refusal.metadata,
        )
        return memory_pb2.BatchAddResult(error=error)
    return memory_pb2.BatchAddResult(
        memory=memory_to_proto(item.outcome), already_existed=item.already_existed
    )


def receipt_to_proto(receipt: DeletionReceipt) -> memory_pb2.DeletionReceipt:
    return memory_pb2.DeletionReceipt(
        receipt_id=receipt.receipt_id,
        memory_id=receipt.fact_id,
        deleted_at=time_to_proto(receipt.deleted_at),
        lines=[_line_to_proto(line) for line in receipt.lines],
        source_turn_ids=receipt.source_turn_ids,
        dependant_memory_ids=receipt.dependant_fact_ids,
    )


def page_token_of_version(user_id: UserId, memory_version: int | None) -> str:
    """Good for this user's listing only. Empty for None: there is no next page."""
    if memory_version is None:
        return ""
    return base64.urlsafe_b64encode(f"{_name_of(user_id)}v{memory_version}".encode()).decode()


def version_of_page_token(user_id: UserId, token: str) -> int:
    """0 for the first page. Raises InvalidInput for what `page_token_of_version` never gave, or
    gave for another user."""
    if not token:
        return 0
    try:
        text = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode()
        name, version = text.split("v")
        if name == _name_of(user_id):
            return check_range("page_token", int(version), minimum=0, maximum=2**63 - 1)
    except (binascii.Error, ValueError) as exc:
        raise InvalidInput("page_token", "is not one that ListMemories gave") from exc
    raise InvalidInput("page_token", "is not one that ListMemories gave for this user")


def _name_of(user_id: UserId) -> str:
    return hashlib.sha256(user_id.encode()).hexdigest()[:16]


def time_to_proto(moment: datetime | None) -> Timestamp | None:
    if moment is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp


def time_from_proto(field: str, message: Message, name: str = "occurred_at") -> datetime | None:
    """The message's own field `name`; `field` is how an error names it. None when it is absent."""
    if not message.HasField(name):
        return None
    timestamp: Timestamp = getattr(message, name)
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(field, "is not a time of the years 1 to 9999") from exc


def _content_of(request: Message) -> str:
    """Equal for two requests that say the same, whichever client wrote them."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()


def _request_id(value: str) -> RequestId:
    return RequestId(check_identifier("request_id", value, MAX_REQUEST_ID))


def _new_fact_or_problem(field: str, message: memory_pb2.NewMemory) -> NewFact | InvalidInput:
    try:
        return _new_fact(field, message)
    except InvalidInput as problem:
        return problem


def _new_fact(field: str, message: memory_pb2.NewMemory) -> NewFact:
    check_count(f"{field}.turn_ids", message.turn_ids, minimum=0, maximum=MAX_SOURCE_TURNS)
    turn_ids = tuple(
        TurnId(check_identifier(f"{field}.turn_ids[{index}]", turn_id))
        for index, turn_id in enumerate(message.turn_ids)
    )
    if turn_ids and not message.conversation_id:
        raise InvalidInput(f"{field}.conversation_id", "is needed where turn_ids are given")
    return NewFact(
        text=check_text(f"{field}.text", message.text, MAX_FACT_CHARACTERS),
        occurred_at=time_from_proto(f"{field}.occurred_at", message),
        conversation_id=_optional_conversation(f"{field}.conversation_id", message.conversation_id),
        turn_ids=turn_ids,
    )


def _new_turn(field: str, message: memory_pb2.Turn) -> NewTurn:
    turn_id = message.turn_id
    return NewTurn(
        turn_id=TurnId(check_identifier(f"{field}.turn_id", turn_id)) if turn_id else None,
        speaker=check_identifier(f"{field}.speaker", message.speaker, MAX_SPEAKER_CHARACTERS),
        text=check_text(f"{field}.text", message.text, MAX_TURN_CHARACTERS),
        occurred_at=time_from_proto(f"{field}.occurred_at", message),
    )


def _optional_conversation(field: str, value: str) -> ConversationId | None:
    return ConversationId(check_identifier(field, value, MAX_REFERENCE_ID)) if value else None


def _check_distinct(field: str, ids: Sequence[TurnId]) -> None:
    if len(set(ids)) != len(ids):
        raise InvalidInput(field, "name one turn_id twice")


def _status_to_proto(status: EncodeStatus) -> memory_pb2.EncodeStatus:
    return memory_pb2.EncodeStatus(
        model_revision=status.target.model_revision,
        recipe=status.target.recipe,
        state=_ENCODE_STATE[status.state],
        reason=status.reason,
        num_tokens=status.num_tokens,
        updated_at=time_to_proto(status.updated_at),
    )


def _residency_to_proto(place: Residency) -> memory_pb2.Residency:
    return memory_pb2.Residency(
        worker_id=place.worker_id,
        model_revision=place.target.model_revision,
        recipe=place.target.recipe,
        tier=place.tier,
    )


def _line_to_proto(line: ReceiptLine) -> memory_pb2.ReceiptLine:
    return memory_pb2.ReceiptLine(
        holder=line.holder,
        worker_id=line.worker_id or "",
        state=_PURGE_STATE[line.state],
        count=line.count,
        updated_at=time_to_proto(line.updated_at),
    )
