import datetime
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from . import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
DESCRIPTOR: _descriptor.FileDescriptor

class PurgeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PURGE_STATE_UNSPECIFIED: _ClassVar[PurgeState]
    PURGE_STATE_PURGED: _ClassVar[PurgeState]
    PURGE_STATE_PENDING: _ClassVar[PurgeState]
PURGE_STATE_UNSPECIFIED: PurgeState
PURGE_STATE_PURGED: PurgeState
PURGE_STATE_PENDING: PurgeState

class Memory(_message.Message):
    __slots__ = ('memory_id', 'user_id', 'text', 'revision', 'memory_version', 'occurred_at', 'created_at', 'updated_at', 'conversation_id', 'turn_ids', 'encode_status', 'residency')
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_STATUS_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    memory_id: str
    user_id: str
    text: str
    revision: int
    memory_version: int
    occurred_at: _timestamp_pb2.Timestamp
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    conversation_id: str
    turn_ids: _containers.RepeatedScalarFieldContainer[str]
    encode_status: _containers.RepeatedCompositeFieldContainer[EncodeStatus]
    residency: _containers.RepeatedCompositeFieldContainer[Residency]

    def __init__(self, memory_id: _Optional[str]=..., user_id: _Optional[str]=..., text: _Optional[str]=..., revision: _Optional[int]=..., memory_version: _Optional[int]=..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., conversation_id: _Optional[str]=..., turn_ids: _Optional[_Iterable[str]]=..., encode_status: _Optional[_Iterable[_Union[EncodeStatus, _Mapping]]]=..., residency: _Optional[_Iterable[_Union[Residency, _Mapping]]]=...) -> None:
        ...

class EncodeStatus(_message.Message):
    __slots__ = ('model_revision', 'recipe', 'state', 'reason', 'num_tokens', 'updated_at')
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    model_revision: str
    recipe: str
    state: _common_pb2.EncodeState
    reason: str
    num_tokens: int
    updated_at: _timestamp_pb2.Timestamp

    def __init__(self, model_revision: _Optional[str]=..., recipe: _Optional[str]=..., state: _Optional[_Union[_common_pb2.EncodeState, str]]=..., reason: _Optional[str]=..., num_tokens: _Optional[int]=..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=...) -> None:
        ...

class Residency(_message.Message):
    __slots__ = ('worker_id', 'model_revision', 'recipe', 'tier')
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    model_revision: str
    recipe: str
    tier: _common_pb2.Tier

    def __init__(self, worker_id: _Optional[str]=..., model_revision: _Optional[str]=..., recipe: _Optional[str]=..., tier: _Optional[_Union[_common_pb2.Tier, str]]=...) -> None:
        ...

class NewMemory(_message.Message):
    __slots__ = ('text', 'occurred_at', 'conversation_id', 'turn_ids')
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    occurred_at: _timestamp_pb2.Timestamp
    conversation_id: str
    turn_ids: _containers.RepeatedScalarFieldContainer[str]

    def __init__(self, text: _Optional[str]=..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., conversation_id: _Optional[str]=..., turn_ids: _Optional[_Iterable[str]]=...) -> None:
        ...

class AddMemoryRequest(_message.Message):
    __slots__ = ('request_id', 'user_id', 'memory')
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    memory: NewMemory

    def __init__(self, request_id: _Optional[str]=..., user_id: _Optional[str]=..., memory: _Optional[_Union[NewMemory, _Mapping]]=...) -> None:
        ...

class AddMemoryResponse(_message.Message):
    __slots__ = ('memory', 'memory_version', 'already_existed')
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    ALREADY_EXISTED_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    memory_version: int
    already_existed: bool

    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]]=..., memory_version: _Optional[int]=..., already_existed: bool=...) -> None:
        ...

class BatchAddMemoriesRequest(_message.Message):
    __slots__ = ('request_id', 'user_id', 'memories')
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORIES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    memories: _containers.RepeatedCompositeFieldContainer[NewMemory]

    def __init__(self, request_id: _Optional[str]=..., user_id: _Optional[str]=..., memories: _Optional[_Iterable[_Union[NewMemory, _Mapping]]]=...) -> None:
        ...

class BatchAddResult(_message.Message):
    __slots__ = ('memory', 'error', 'already_existed')
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ALREADY_EXISTED_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    error: ItemError
    already_existed: bool

    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]]=..., error: _Optional[_Union[ItemError, _Mapping]]=..., already_existed: bool=...) -> None:
        ...

class ItemError(_message.Message):
    __slots__ = ('code', 'field', 'message', 'metadata')

    class MetadataEntry(_message.Message):
        __slots__ = ('key', 'value')
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str

        def __init__(self, key: _Optional[str]=..., value: _Optional[str]=...) -> None:
            ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    code: str
    field: str
    message: str
    metadata: _containers.ScalarMap[str, str]

    def __init__(self, code: _Optional[str]=..., field: _Optional[str]=..., message: _Optional[str]=..., metadata: _Optional[_Mapping[str, str]]=...) -> None:
        ...

class BatchAddMemoriesResponse(_message.Message):
    __slots__ = ('results', 'memory_version')
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchAddResult]
    memory_version: int

    def __init__(self, results: _Optional[_Iterable[_Union[BatchAddResult, _Mapping]]]=..., memory_version: _Optional[int]=...) -> None:
        ...

class GetMemoryRequest(_message.Message):
    __slots__ = ('user_id', 'memory_id')
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    memory_id: str

    def __init__(self, user_id: _Optional[str]=..., memory_id: _Optional[str]=...) -> None:
        ...

class GetMemoryResponse(_message.Message):
    __slots__ = ('memory',)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: Memory

    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]]=...) -> None:
        ...

class ListMemoriesRequest(_message.Message):
    __slots__ = ('user_id', 'page_size', 'page_token')
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    page_size: int
    page_token: str

    def __init__(self, user_id: _Optional[str]=..., page_size: _Optional[int]=..., page_token: _Optional[str]=...) -> None:
        ...

class ListMemoriesResponse(_message.Message):
    __slots__ = ('memories', 'next_page_token', 'memory_version')
    MEMORIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    memories: _containers.RepeatedCompositeFieldContainer[Memory]
    next_page_token: str
    memory_version: int

    def __init__(self, memories: _Optional[_Iterable[_Union[Memory, _Mapping]]]=..., next_page_token: _Optional[str]=..., memory_version: _Optional[int]=...) -> None:
        ...

class UpdateMemoryRequest(_message.Message):
    __slots__ = ('request_id', 'user_id', 'memory_id', 'expected_revision', 'text', 'occurred_at')
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    memory_id: str
    expected_revision: int
    text: str
    occurred_at: _timestamp_pb2.Timestamp

    def __init__(self, request_id: _Optional[str]=..., user_id: _Optional[str]=..., memory_id: _Optional[str]=..., expected_revision: _Optional[int]=..., text: _Optional[str]=..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=...) -> None:
        ...

class UpdateMemoryResponse(_message.Message):
    __slots__ = ('memory', 'memory_version', 'dependants_dropped')
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEPENDANTS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    memory_version: int
    dependants_dropped: int

    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]]=..., memory_version: _Optional[int]=..., dependants_dropped: _Optional[int]=...) -> None:
        ...

class DeleteMemoryRequest(_message.Message):
    __slots__ = ('request_id', 'user_id', 'memory_id', 'purge_sources')
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    PURGE_SOURCES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    memory_id: str
    purge_sources: bool

    def __init__(self, request_id: _Optional[str]=..., user_id: _Optional[str]=..., memory_id: _Optional[str]=..., purge_sources: bool=...) -> None:
        ...

class DeleteMemoryResponse(_message.Message):
    __slots__ = ('receipt', 'memory_version')
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    receipt: DeletionReceipt
    memory_version: int

    def __init__(self, receipt: _Optional[_Union[DeletionReceipt, _Mapping]]=..., memory_version: _Optional[int]=...) -> None:
        ...

class DeletionReceipt(_message.Message):
    __slots__ = ('receipt_id', 'memory_id', 'deleted_at', 'lines', 'source_turn_ids', 'dependant_memory_ids')
    RECEIPT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_AT_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    DEPENDANT_MEMORY_IDS_FIELD_NUMBER: _ClassVar[int]
    receipt_id: str
    memory_id: str
    deleted_at: _timestamp_pb2.Timestamp
    lines: _containers.RepeatedCompositeFieldContainer[ReceiptLine]
    source_turn_ids: _containers.RepeatedScalarFieldContainer[str]
    dependant_memory_ids: _containers.RepeatedScalarFieldContainer[str]

    def __init__(self, receipt_id: _Optional[str]=..., memory_id: _Optional[str]=..., deleted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., lines: _Optional[_Iterable[_Union[ReceiptLine, _Mapping]]]=..., source_turn_ids: _Optional[_Iterable[str]]=..., dependant_memory_ids: _Optional[_Iterable[str]]=...) -> None:
        ...

class ReceiptLine(_message.Message):
    __slots__ = ('holder', 'worker_id', 'state', 'count', 'updated_at')
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    holder: str
    worker_id: str
    state: PurgeState
    count: int
    updated_at: _timestamp_pb2.Timestamp

    def __init__(self, holder: _Optional[str]=..., worker_id: _Optional[str]=..., state: _Optional[_Union[PurgeState, str]]=..., count: _Optional[int]=..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=...) -> None:
        ...

class GetDeletionReceiptRequest(_message.Message):
    __slots__ = ('user_id', 'receipt_id')
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    receipt_id: str

    def __init__(self, user_id: _Optional[str]=..., receipt_id: _Optional[str]=...) -> None:
        ...

class GetDeletionReceiptResponse(_message.Message):
    __slots__ = ('receipt',)
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    receipt: DeletionReceipt

    def __init__(self, receipt: _Optional[_Union[DeletionReceipt, _Mapping]]=...) -> None:
        ...

class SearchMemoriesRequest(_message.Message):
    __slots__ = ('user_id', 'query', 'k', 'min_memory_version')
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    MIN_MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    query: str
    k: int
    min_memory_version: int

    def __init__(self, user_id: _Optional[str]=..., query: _Optional[str]=..., k: _Optional[int]=..., min_memory_version: _Optional[int]=...) -> None:
        ...

class SearchMemoriesResponse(_message.Message):
    __slots__ = ('results', 'memory_version')
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ScoredMemory]
    memory_version: int

    def __init__(self, results: _Optional[_Iterable[_Union[ScoredMemory, _Mapping]]]=..., memory_version: _Optional[int]=...) -> None:
        ...

class ScoredMemory(_message.Message):
    __slots__ = ('memory', 'score')
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    score: float

    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]]=..., score: _Optional[float]=...) -> None:
        ...

class Turn(_message.Message):
    __slots__ = ('turn_id', 'speaker', 'text', 'occurred_at')
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    speaker: str
    text: str
    occurred_at: _timestamp_pb2.Timestamp

    def __init__(self, turn_id: _Optional[str]=..., speaker: _Optional[str]=..., text: _Optional[str]=..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=...) -> None:
        ...

class AppendTurnsRequest(_message.Message):
    __slots__ = ('request_id', 'user_id', 'conversation_id', 'turns')
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    conversation_id: str
    turns: _containers.RepeatedCompositeFieldContainer[Turn]

    def __init__(self, request_id: _Optional[str]=..., user_id: _Optional[str]=..., conversation_id: _Optional[str]=..., turns: _Optional[_Iterable[_Union[Turn, _Mapping]]]=...) -> None:
        ...

class AppendTurnsResponse(_message.Message):
    __slots__ = ('turn_ids', 'memory_version')
    TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    turn_ids: _containers.RepeatedScalarFieldContainer[str]
    memory_version: int

    def __init__(self, turn_ids: _Optional[_Iterable[str]]=..., memory_version: _Optional[int]=...) -> None:
        ...

class DeleteTurnsRequest(_message.Message):
    __slots__ = ('request_id', 'user_id', 'conversation_id', 'turn_ids')
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    user_id: str
    conversation_id: str
    turn_ids: _containers.RepeatedScalarFieldContainer[str]

    def __init__(self, request_id: _Optional[str]=..., user_id: _Optional[str]=..., conversation_id: _Optional[str]=..., turn_ids: _Optional[_Iterable[str]]=...) -> None:
        ...

class DeleteTurnsResponse(_message.Message):
    __slots__ = ('turns_deleted', 'dependants_dropped', 'memory_version')
    TURNS_DELETED_FIELD_NUMBER: _ClassVar[int]
    DEPENDANTS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    turns_deleted: int
    dependants_dropped: int
    memory_version: int

    def __init__(self, turns_deleted: _Optional[int]=..., dependants_dropped: _Optional[int]=..., memory_version: _Optional[int]=...) -> None:
        ...