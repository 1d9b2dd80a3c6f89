from . import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
DESCRIPTOR: _descriptor.FileDescriptor

class ChatRequest(_message.Message):
    __slots__ = ('user_id', 'messages', 'k', 'sampling', 'model', 'mode', 'min_memory_version', 'timed', 'text_facts', 'scoring')
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MIN_MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FACTS_FIELD_NUMBER: _ClassVar[int]
    SCORING_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    messages: _containers.RepeatedCompositeFieldContainer[_common_pb2.Message]
    k: int
    sampling: _common_pb2.Sampling
    model: str
    mode: _common_pb2.ServingMode
    min_memory_version: int
    timed: bool
    text_facts: int
    scoring: Scoring

    def __init__(self, user_id: _Optional[str]=..., messages: _Optional[_Iterable[_Union[_common_pb2.Message, _Mapping]]]=..., k: _Optional[int]=..., sampling: _Optional[_Union[_common_pb2.Sampling, _Mapping]]=..., model: _Optional[str]=..., mode: _Optional[_Union[_common_pb2.ServingMode, str]]=..., min_memory_version: _Optional[int]=..., timed: bool=..., text_facts: _Optional[int]=..., scoring: _Optional[_Union[Scoring, _Mapping]]=...) -> None:
        ...

class Scoring(_message.Message):
    __slots__ = ('answer', 'compared_token_ids')
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    COMPARED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    answer: str
    compared_token_ids: _containers.RepeatedScalarFieldContainer[int]

    def __init__(self, answer: _Optional[str]=..., compared_token_ids: _Optional[_Iterable[int]]=...) -> None:
        ...

class Scored(_message.Message):
    __slots__ = ('prompt_digest', 'answer_logprobs', 'top_token_id', 'token_ids', 'logprobs')
    PROMPT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ANSWER_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    prompt_digest: str
    answer_logprobs: _containers.RepeatedScalarFieldContainer[float]
    top_token_id: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]

    def __init__(self, prompt_digest: _Optional[str]=..., answer_logprobs: _Optional[_Iterable[float]]=..., top_token_id: _Optional[int]=..., token_ids: _Optional[_Iterable[int]]=..., logprobs: _Optional[_Iterable[float]]=...) -> None:
        ...

class ChatResponse(_message.Message):
    __slots__ = ('retrieved', 'served', 'delta', 'done', 'scored')
    RETRIEVED_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    retrieved: Retrieved
    served: Served
    delta: Delta
    done: Done
    scored: Scored

    def __init__(self, retrieved: _Optional[_Union[Retrieved, _Mapping]]=..., served: _Optional[_Union[Served, _Mapping]]=..., delta: _Optional[_Union[Delta, _Mapping]]=..., done: _Optional[_Union[Done, _Mapping]]=..., scored: _Optional[_Union[Scored, _Mapping]]=...) -> None:
        ...

class Retrieved(_message.Message):
    __slots__ = ('facts', 'memory_version', 'worker_id', 'model_revision', 'recipe', 'question_tokens', 'searched_tokens')
    FACTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_VERSION_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    RECIPE_FIELD_NUMBER: _ClassVar[int]
    QUESTION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    facts: _containers.RepeatedCompositeFieldContainer[_common_pb2.ServedFact]
    memory_version: int
    worker_id: str
    model_revision: str
    recipe: str
    question_tokens: int
    searched_tokens: int

    def __init__(self, facts: _Optional[_Iterable[_Union[_common_pb2.ServedFact, _Mapping]]]=..., memory_version: _Optional[int]=..., worker_id: _Optional[str]=..., model_revision: _Optional[str]=..., recipe: _Optional[str]=..., question_tokens: _Optional[int]=..., searched_tokens: _Optional[int]=...) -> None:
        ...

class Served(_message.Message):
    __slots__ = ('facts', 'usage', 'timings')
    FACTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    facts: _containers.RepeatedCompositeFieldContainer[_common_pb2.ServedFact]
    usage: _common_pb2.Usage
    timings: _common_pb2.Timings

    def __init__(self, facts: _Optional[_Iterable[_Union[_common_pb2.ServedFact, _Mapping]]]=..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]]=..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping]]=...) -> None:
        ...

class Delta(_message.Message):
    __slots__ = ('text',)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str

    def __init__(self, text: _Optional[str]=...) -> None:
        ...

class Done(_message.Message):
    __slots__ = ('finish_reason', 'usage', 'timings')
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    finish_reason: str
    usage: _common_pb2.Usage
    timings: _common_pb2.Timings

    def __init__(self, finish_reason: _Optional[str]=..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]]=..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping]]=...) -> None:
        ...