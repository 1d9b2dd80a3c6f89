import datetime
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from . import chat_pb2 as _chat_pb2
from . import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
DESCRIPTOR: _descriptor.FileDescriptor

class UserRef(_message.Message):
    __slots__ = ('tenant_id', 'user_id', 'memory_version', 'kv_epoch')
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    KV_EPOCH_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    user_id: str
    memory_version: int
    kv_epoch: int

    def __init__(self, tenant_id: _Optional[str]=..., user_id: _Optional[str]=..., memory_version: _Optional[int]=..., kv_epoch: _Optional[int]=...) -> None:
        ...

class FactRef(_message.Message):
    __slots__ = ('fact_id', 'revision')
    FACT_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    fact_id: str
    revision: int

    def __init__(self, fact_id: _Optional[str]=..., revision: _Optional[int]=...) -> None:
        ...

class EncodeRequest(_message.Message):
    __slots__ = ('user',)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: UserRef

    def __init__(self, user: _Optional[_Union[UserRef, _Mapping]]=...) -> None:
        ...

class EncodeResponse(_message.Message):
    __slots__ = ('fact', 'state', 'reason', 'chunk_digest', 'num_tokens', 'prefix_facts', 'prefix_turn_ids', 'already_resident', 'model_revision', 'recipe_hash', 'recipe', 'saw_as_text')
    FACT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHUNK_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FACTS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    ALREADY_RESIDENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    RECIPE_HASH_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    SAW_AS_TEXT_FIELD_NUMBER: _ClassVar[int]
    fact: FactRef
    state: _common_pb2.EncodeState
    reason: str
    chunk_digest: str
    num_tokens: int
    prefix_facts: _containers.RepeatedCompositeFieldContainer[FactRef]
    prefix_turn_ids: _containers.RepeatedScalarFieldContainer[str]
    already_resident: bool
    model_revision: str
    recipe_hash: str
    recipe: str
    saw_as_text: bool

    def __init__(self, fact: _Optional[_Union[FactRef, _Mapping]]=..., state: _Optional[_Union[_common_pb2.EncodeState, str]]=..., reason: _Optional[str]=..., chunk_digest: _Optional[str]=..., num_tokens: _Optional[int]=..., prefix_facts: _Optional[_Iterable[_Union[FactRef, _Mapping]]]=..., prefix_turn_ids: _Optional[_Iterable[str]]=..., already_resident: bool=..., model_revision: _Optional[str]=..., recipe_hash: _Optional[str]=..., recipe: _Optional[str]=..., saw_as_text: bool=...) -> None:
        ...

class GenerateRequest(_message.Message):
    __slots__ = ('user', 'messages', 'k', 'sampling', 'mode', 'timed', 'text_facts', 'scoring')
    USER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    TIMED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FACTS_FIELD_NUMBER: _ClassVar[int]
    SCORING_FIELD_NUMBER: _ClassVar[int]
    user: UserRef
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    k: int
    sampling: _common_pb2.Sampling
    mode: _common_pb2.ServingMode
    timed: bool
    text_facts: int
    scoring: _chat_pb2.Scoring

    def __init__(self, user: _Optional[_Union[UserRef, _Mapping]]=..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]]=..., k: _Optional[int]=..., sampling: _Optional[_Union[_common_pb2.Sampling, _Mapping]]=..., mode: _Optional[_Union[_common_pb2.ServingMode, str]]=..., timed: bool=..., text_facts: _Optional[int]=..., scoring: _Optional[_Union[_chat_pb2.Scoring, _Mapping]]=...) -> None:
        ...

class GenerateResponse(_message.Message):
    __slots__ = ('response', 'not_resident')
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NOT_RESIDENT_FIELD_NUMBER: _ClassVar[int]
    response: _chat_pb2.ChatResponse
    not_resident: _containers.RepeatedCompositeFieldContainer[FactRef]

    def __init__(self, response: _Optional[_Union[_chat_pb2.ChatResponse, _Mapping]]=..., not_resident: _Optional[_Iterable[_Union[FactRef, _Mapping]]]=...) -> None:
        ...

class ForgetRequest(_message.Message):
    __slots__ = ('user', 'fact_ids', 'dependant_fact_ids', 'turn_ids')
    USER_FIELD_NUMBER: _ClassVar[int]
    FACT_IDS_FIELD_NUMBER: _ClassVar[int]
    DEPENDANT_FACT_IDS_FIELD_NUMBER: _ClassVar[int]
    TURN_IDS_FIELD_NUMBER: _ClassVar[int]
    user: UserRef
    fact_ids: _containers.RepeatedScalarFieldContainer[str]
    dependant_fact_ids: _containers.RepeatedScalarFieldContainer[str]
    turn_ids: _containers.RepeatedScalarFieldContainer[str]

    def __init__(self, user: _Optional[_Union[UserRef, _Mapping]]=..., fact_ids: _Optional[_Iterable[str]]=..., dependant_fact_ids: _Optional[_Iterable[str]]=..., turn_ids: _Optional[_Iterable[str]]=...) -> None:
        ...

class ForgetResponse(_message.Message):
    __slots__ = ('user_cache', 'arena_chunks', 'host_chunks', 'disk_chunks', 'dependants', 'pending_chunks', 'pending_host_chunks', 'pending_disk_chunks')
    USER_CACHE_FIELD_NUMBER: _ClassVar[int]
    ARENA_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    HOST_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DISK_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DEPENDANTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    PENDING_HOST_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    PENDING_DISK_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    user_cache: int
    arena_chunks: int
    host_chunks: int
    disk_chunks: int
    dependants: int
    pending_chunks: int
    pending_host_chunks: int
    pending_disk_chunks: int

    def __init__(self, user_cache: _Optional[int]=..., arena_chunks: _Optional[int]=..., host_chunks: _Optional[int]=..., disk_chunks: _Optional[int]=..., dependants: _Optional[int]=..., pending_chunks: _Optional[int]=..., pending_host_chunks: _Optional[int]=..., pending_disk_chunks: _Optional[int]=...) -> None:
        ...

class CacheStatusRequest(_message.Message):
    __slots__ = ('user',)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: UserRef

    def __init__(self, user: _Optional[_Union[UserRef, _Mapping]]=...) -> None:
        ...

class ChunkStatus(_message.Message):
    __slots__ = ('fact', 'tier', 'num_tokens', 'chunk_digest')
    FACT_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_DIGEST_FIELD_NUMBER: _ClassVar[int]
    fact: FactRef
    tier: _common_pb2.Tier
    num_tokens: int
    chunk_digest: str

    def __init__(self, fact: _Optional[_Union[FactRef, _Mapping]]=..., tier: _Optional[_Union[_common_pb2.Tier, str]]=..., num_tokens: _Optional[int]=..., chunk_digest: _Optional[str]=...) -> None:
        ...

class CacheStatusResponse(_message.Message):
    __slots__ = ('chunks', 'resident_chunks', 'resident_bytes', 'capacity_bytes', 'pinned_bytes', 'evictions', 'memory_version', 'min_injected_tokens', 'tiers')
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    MIN_INJECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedCompositeFieldContainer[ChunkStatus]
    resident_chunks: int
    resident_bytes: int
    capacity_bytes: int
    pinned_bytes: int
    evictions: int
    memory_version: int
    min_injected_tokens: int
    tiers: _containers.RepeatedCompositeFieldContainer[TierUsage]

    def __init__(self, chunks: _Optional[_Iterable[_Union[ChunkStatus, _Mapping]]]=..., resident_chunks: _Optional[int]=..., resident_bytes: _Optional[int]=..., capacity_bytes: _Optional[int]=..., pinned_bytes: _Optional[int]=..., evictions: _Optional[int]=..., memory_version: _Optional[int]=..., min_injected_tokens: _Optional[int]=..., tiers: _Optional[_Iterable[_Union[TierUsage, _Mapping]]]=...) -> None:
        ...

class TierUsage(_message.Message):
    __slots__ = ('tier', 'resident_bytes', 'capacity_bytes', 'pinned_bytes')
    TIER_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    tier: _common_pb2.Tier
    resident_bytes: int
    capacity_bytes: int
    pinned_bytes: int

    def __init__(self, tier: _Optional[_Union[_common_pb2.Tier, str]]=..., resident_bytes: _Optional[int]=..., capacity_bytes: _Optional[int]=..., pinned_bytes: _Optional[int]=...) -> None:
        ...

class Statement(_message.Message):
    __slots__ = ('text', 'occurred_at')
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    text: str
    occurred_at: _timestamp_pb2.Timestamp

    def __init__(self, text: _Optional[str]=..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]=...) -> None:
        ...

class CountTokensRequest(_message.Message):
    __slots__ = ('statements',)
    STATEMENTS_FIELD_NUMBER: _ClassVar[int]
    statements: _containers.RepeatedCompositeFieldContainer[Statement]

    def __init__(self, statements: _Optional[_Iterable[_Union[Statement, _Mapping]]]=...) -> None:
        ...

class CountTokensResponse(_message.Message):
    __slots__ = ('num_tokens', 'max_fact_tokens')
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_FACT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    num_tokens: _containers.RepeatedScalarFieldContainer[int]
    max_fact_tokens: int

    def __init__(self, num_tokens: _Optional[_Iterable[int]]=..., max_fact_tokens: _Optional[int]=...) -> None:
        ...