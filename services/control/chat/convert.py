"""From ChatService's request to what a worker is asked, checked field by field."""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import UserId
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, common_pb2, worker_pb2
from services.control.validation import (
    MAX_USER_ID,
    check_count,
    check_identifier,
    check_length,
    check_number,
    check_range,
)
from services.control.workers import UserAt

MAX_MESSAGES = 200
MAX_MESSAGE_CHARACTERS = 100_000
MAX_K = 200
DEFAULT_K = 20
MAX_ANSWER_TOKENS = 4_096
DEFAULT_ANSWER_TOKENS = 256
MAX_TEMPERATURE = 2.0
MAX_STOPS = 8
MAX_STOP_CHARACTERS = 64
MAX_SCORED_CHARACTERS = 2_000
MAX_COMPARED_TOKENS = 128
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Chat:
    """What a worker is asked, less the user. `model` is empty for the tenant's first."""

    user_id: UserId
    model: str
    min_memory_version: int
    payload: worker_pb2.GenerateRequest

    def to_worker(self, user: UserAt) -> worker_pb2.GenerateRequest:
        request = worker_pb2.GenerateRequest()
        request.CopyFrom(self.payload)
        request.user.CopyFrom(user.to_proto())
        return request


def chat_from_proto(request: chat_pb2.ChatRequest) -> Chat:
    _check_messages(request)
    _check_sampling(request.sampling)
    if request.mode not in common_pb2.ServingMode.values():
        raise InvalidInput("mode", f"{request.mode} is not a value of ServingMode")
    k = request.k if request.HasField("k") else DEFAULT_K
    check_range("k", k, minimum=0, maximum=MAX_K)
    payload = worker_pb2.GenerateRequest(
        messages=request.messages,
        k=k,
        sampling=request.sampling,
        mode=request.mode or common_pb2.SERVING_MODE_INJECTED,
        timed=request.timed,
    )
    if request.HasField("scoring"):
        _check_scoring(request.scoring)
        payload.scoring.CopyFrom(request.scoring)
    if request.HasField("text_facts"):
        payload.text_facts = check_range("text_facts", request.text_facts, minimum=0, maximum=k)
    return Chat(
        user_id=UserId(check_identifier("user_id", request.user_id, MAX_USER_ID)),
        model=request.model,
        min_memory_version=request.min_memory_version,
        payload=payload,
    )


def _check_messages(request: chat_pb2.ChatRequest) -> None:
    check_count("messages", request.messages, minimum=1, maximum=MAX_MESSAGES)
    for index, message in enumerate(request.messages):
        field = f"messages[{index}]"
        if message.role not in ROLES:
            raise InvalidInput(
                f"{field}.role", f"{message.role[:40]!r} is not one of: {', '.join(ROLES)}"
            )
        check_length(f"{field}.content", message.content, MAX_MESSAGE_CHARACTERS)
    if request.messages[-1].role != "user":
        raise InvalidInput(
            f"messages[{len(request.messages) - 1}].role", "the last message must be the user's"
        )


def _check_scoring(scoring: chat_pb2.Scoring) -> None:
    check_length("scoring.answer", scoring.answer, MAX_SCORED_CHARACTERS)
    check_count(
        "scoring.compared_token_ids",
        scoring.compared_token_ids,
        minimum=0,
        maximum=MAX_COMPARED_TOKENS,
    )


def _check_sampling(sampling: common_pb2.Sampling) -> None:
    max_tokens = sampling.max_tokens if sampling.HasField("max_tokens") else DEFAULT_ANSWER_TOKENS
    check_range("sampling.max_tokens", max_tokens, minimum=1, maximum=MAX_ANSWER_TOKENS)
    check_range("sampling.min_tokens", sampling.min_tokens, minimum=0, maximum=max_tokens)
    check_number("sampling.temperature", sampling.temperature, minimum=0, maximum=MAX_TEMPERATURE)
    if sampling.HasField("top_p") and not 0 < sampling.top_p <= 1:
        raise InvalidInput("sampling.top_p", f"{sampling.top_p:g} is not above 0 and up to 1")
    check_count("sampling.stop", sampling.stop, minimum=0, maximum=MAX_STOPS)
    for index, stop in enumerate(sampling.stop):
        check_length(f"sampling.stop[{index}]", stop, MAX_STOP_CHARACTERS)
