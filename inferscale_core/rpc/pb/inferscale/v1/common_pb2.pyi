from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
DESCRIPTOR: _descriptor.FileDescriptor

class Serving(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVING_UNSPECIFIED: _ClassVar[Serving]
    SERVING_INJECTED: _ClassVar[Serving]
    SERVING_NATIVE_HIT: _ClassVar[Serving]
    SERVING_PREFILLED: _ClassVar[Serving]

class ServingMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVING_MODE_UNSPECIFIED: _ClassVar[ServingMode]
    SERVING_MODE_INJECTED: _ClassVar[ServingMode]
    SERVING_MODE_TEXT: _ClassVar[ServingMode]

class EncodeState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODE_STATE_UNSPECIFIED: _ClassVar[EncodeState]
    ENCODE_STATE_PENDING: _ClassVar[EncodeState]
    ENCODE_STATE_DONE: _ClassVar[EncodeState]
    ENCODE_STATE_FAILED: _ClassVar[EncodeState]
    ENCODE_STATE_DROPPED: _ClassVar[EncodeState]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_GPU: _ClassVar[Tier]
    TIER_HOST: _ClassVar[Tier]
    TIER_DISK: _ClassVar[Tier]
SERVING_UNSPECIFIED: Serving
SERVING_INJECTED: Serving
SERVING_NATIVE_HIT: Serving
SERVING_PREFILLED: Serving
SERVING_MODE_UNSPECIFIED: ServingMode
SERVING_MODE_INJECTED: ServingMode
SERVING_MODE_TEXT: ServingMode
ENCODE_STATE_UNSPECIFIED: EncodeState
ENCODE_STATE_PENDING: EncodeState
ENCODE_STATE_DONE: EncodeState
ENCODE_STATE_FAILED: EncodeState
ENCODE_STATE_DROPPED: EncodeState
TIER_UNSPECIFIED: Tier
TIER_GPU: Tier
TIER_HOST: Tier
TIER_DISK: Tier

class Sampling(_message.Message):
    __slots__ = ('temperature', 'top_p', 'max_tokens', 'seed', 'stop', 'min_tokens')
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    min_tokens: int

    def __init__(self, temperature: _Optional[float]=..., top_p: _Optional[float]=..., max_tokens: _Optional[int]=..., seed: _Optional[int]=..., stop: _Optional[_Iterable[str]]=..., min_tokens: _Optional[int]=...) -> None:
        ...

class Message(_message.Message):
    __slots__ = ('role', 'content')
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str

    def __init__(self, role: _Optional[str]=..., content: _Optional[str]=...) -> None:
        ...

class Usage(_message.Message):
    __slots__ = ('prompt_tokens', 'injected_tokens', 'native_hit_tokens', 'prefilled_tokens', 'completion_tokens', 'facts_injected', 'facts_native_hit', 'facts_prefilled')
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INJECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NATIVE_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FACTS_INJECTED_FIELD_NUMBER: _ClassVar[int]
    FACTS_NATIVE_HIT_FIELD_NUMBER: _ClassVar[int]
    FACTS_PREFILLED_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    injected_tokens: int
    native_hit_tokens: int
    prefilled_tokens: int
    completion_tokens: int
    facts_injected: int
    facts_native_hit: int
    facts_prefilled: int

    def __init__(self, prompt_tokens: _Optional[int]=..., injected_tokens: _Optional[int]=..., native_hit_tokens: _Optional[int]=..., prefilled_tokens: _Optional[int]=..., completion_tokens: _Optional[int]=..., facts_injected: _Optional[int]=..., facts_native_hit: _Optional[int]=..., facts_prefilled: _Optional[int]=...) -> None:
        ...

class Timings(_message.Message):
    __slots__ = ('embed_ms', 'retrieve_ms', 'plan_ms', 'queue_ms', 'inject_ms', 'prefill_ms', 'first_token_ms', 'total_ms', 'sync_ms')
    EMBED_MS_FIELD_NUMBER: _ClassVar[int]
    RETRIEVE_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    INJECT_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    SYNC_MS_FIELD_NUMBER: _ClassVar[int]
    embed_ms: float
    retrieve_ms: float
    plan_ms: float
    queue_ms: float
    inject_ms: float
    prefill_ms: float
    first_token_ms: float
    total_ms: float
    sync_ms: float

    def __init__(self, embed_ms: _Optional[float]=..., retrieve_ms: _Optional[float]=..., plan_ms: _Optional[float]=..., queue_ms: _Optional[float]=..., inject_ms: _Optional[float]=..., prefill_ms: _Optional[float]=..., first_token_ms: _Optional[float]=..., total_ms: _Optional[float]=..., sync_ms: _Optional[float]=...) -> None:
        ...

class ServedFact(_message.Message):
    __slots__ = ('memory_id', 'revision', 'score', 'num_tokens', 'serving', 'text')
    MEMORY_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    memory_id: str
    revision: int
    score: float
    num_tokens: int
    serving: Serving
    text: str

    def __init__(self, memory_id: _Optional[str]=..., revision: _Optional[int]=..., score: _Optional[float]=..., num_tokens: _Optional[int]=..., serving: _Optional[_Union[Serving, str]]=..., text: _Optional[str]=...) -> None:
        ...