import datetime
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
DESCRIPTOR: _descriptor.FileDescriptor

class ListChangesRequest(_message.Message):
    __slots__ = ('tenant_id', 'user_id', 'after_version', 'with_disk_key')
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    WITH_DISK_KEY_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    user_id: str
    after_version: int
    with_disk_key: bool

    def __init__(self, tenant_id: _Optional[str]=..., user_id: _Optional[str]=..., after_version: _Optional[int]=..., with_disk_key: bool=...) -> None:
        ...

class ListChangesResponse(_message.Message):
    __slots__ = ('memory_version', 'kv_epoch', 'facts', 'removed_fact_ids', 'turns', 'removed_turn_ids', 'last', 'disk_key')
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    KV_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FACT_IDS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DISK_KEY_FIELD_NUMBER: _ClassVar[int]
    memory_version: int
    kv_epoch: int
    facts: _containers.RepeatedCompositeFieldContainer[FactChange]
    removed_fact_ids: _containers.RepeatedScalarFieldContainer[str]
    turns: _containers.RepeatedCompositeFieldContainer[TurnChange]
    removed_turn_ids: _containers.RepeatedScalarFieldContainer[str]
    last: bool
    disk_key: DiskKey

    def __init__(self, memory_version: _Optional[int]=..., kv_epoch: _Optional[int]=..., facts: _Optional[_Iterable[_Union[FactChange, _Mapping]]]=..., removed_fact_ids: _Optional[_Iterable[str]]=..., turns: _Optional[_Iterable[_Union[TurnChange, _Mapping]]]=..., removed_turn_ids: _Optional[_Iterable[str]]=..., last: bool=..., disk_key: _Optional[_Union[DiskKey, _Mapping]]=...) -> None:
        ...

class DiskKey(_message.Message):
    __slots__ = ('kv_epoch', 'secret')
    KV_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    kv_epoch: int
    secret: bytes

    def __init__(self, kv_epoch: _Optional[int]=..., secret: _Optional[bytes]=...) -> None:
        ...

class FactChange(_message.Message):
    __slots__ = ('fact_id', 'revision', 'memory_version', 'text', 'occurred_at', 'embedding', 'conversation_id', 'turn_ids')
    FACT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    fact_id: str
    revision: int
    memory_version: int
    text: str
    occurred_at: _timestamp_pb2.Timestamp
    embedding: bytes
    conversation_id: str
    turn_ids: _containers.RepeatedScalarFieldContainer[str]

    def __init__(self, fact_id: _Optional[str]=..., revision: _Optional[int]=..., memory_version: _Optional[int]=..., text: _Optional[str]=..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., embedding: _Optional[bytes]=..., conversation_id: _Optional[str]=..., turn_ids: _Optional[_Iterable[str]]=...) -> None:
        ...

class TurnChange(_message.Message):
    __slots__ = ('turn_id', 'conversation_id', 'position', 'speaker', 'text', 'occurred_at', 'memory_version')
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    turn_id: str
    conversation_id: str
    position: int
    speaker: str
    text: str
    occurred_at: _timestamp_pb2.Timestamp
    memory_version: int

    def __init__(self, turn_id: _Optional[str]=..., conversation_id: _Optional[str]=..., position: _Optional[int]=..., speaker: _Optional[str]=..., text: _Optional[str]=..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=..., memory_version: _Optional[int]=...) -> None:
        ...

class EmbedderIdentity(_message.Message):
    __slots__ = ('embedder_id', 'revision', 'dimension')
    EMBEDDER_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    embedder_id: str
    revision: str
    dimension: int

    def __init__(self, embedder_id: _Optional[str]=..., revision: _Optional[str]=..., dimension: _Optional[int]=...) -> None:
        ...

class JoinWorkerRequest(_message.Message):
    __slots__ = ('worker_id', 'instance_id', 'address', 'model', 'model_revision', 'recipe', 'recipe_hash', 'embedder', 'draining', 'max_fact_tokens', 'renewal')
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    RECIPE_HASH_FIELD_NUMBER: _ClassVar[int]
    EMBEDDER_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    MAX_FACT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RENEWAL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    instance_id: str
    address: str
    model: str
    model_revision: str
    recipe: str
    recipe_hash: str
    embedder: EmbedderIdentity
    draining: bool
    max_fact_tokens: int
    renewal: bool

    def __init__(self, worker_id: _Optional[str]=..., instance_id: _Optional[str]=..., address: _Optional[str]=..., model: _Optional[str]=..., model_revision: _Optional[str]=..., recipe: _Optional[str]=..., recipe_hash: _Optional[str]=..., embedder: _Optional[_Union[EmbedderIdentity, _Mapping]]=..., draining: bool=..., max_fact_tokens: _Optional[int]=..., renewal: bool=...) -> None:
        ...

class JoinWorkerResponse(_message.Message):
    __slots__ = ('lease_s',)
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    lease_s: int

    def __init__(self, lease_s: _Optional[int]=...) -> None:
        ...

class RemoveWorkerRequest(_message.Message):
    __slots__ = ('worker_id',)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str

    def __init__(self, worker_id: _Optional[str]=...) -> None:
        ...

class RemoveWorkerResponse(_message.Message):
    __slots__ = ()

    def __init__(self) -> None:
        ...