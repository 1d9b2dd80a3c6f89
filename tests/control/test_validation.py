"""What requests are refused for, with the field and the limit in the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import UserId
from inferscale_core.rpc.pb.inferscale.v1 import memory_pb2 as pb
from services.control.memory import convert
from services.control.memory.convert import page_token_of_version, version_of_page_token
from services.control.validation import check_identifier, check_text

FACT = pb.NewMemory(text="Mira has a dog.")


def add(**changes: Any) -> object:
    fields = {"request_id": "r", "user_id": "mira", "memory": FACT, **changes}
    return convert.add_memory_from_proto(pb.AddMemoryRequest(**fields))


def batch(**changes: Any) -> object:
    fields = {"request_id": "r", "user_id": "mira", "memories": [FACT], **changes}
    return convert.batch_add_from_proto(pb.BatchAddMemoriesRequest(**fields))


def update(**changes: Any) -> object:
    fields = {"request_id": "r", "user_id": "mira", "memory_id": "m", "text": "T.", **changes}
    return convert.update_memory_from_proto(pb.UpdateMemoryRequest(**fields))


def append(**changes: Any) -> object:
    turn = pb.Turn(speaker="Mira", text="Hi.")
    fields = {"request_id": "r", "user_id": "mira", "conversation_id": "c", "turns": [turn]}
    return convert.append_turns_from_proto(pb.AppendTurnsRequest(**{**fields, **changes}))


def delete_turns(**changes: Any) -> object:
    fields = {"request_id": "r", "user_id": "mira", "conversation_id": "c", **changes}
    return convert.delete_turns_from_proto(pb.DeleteTurnsRequest(**fields))


def search(**changes: Any) -> object:
    fields = {"user_id": "mira", "query": "dog", **changes}
    return convert.search_from_proto(pb.SearchMemoriesRequest(**fields))


REFUSED: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (add, {"request_id": ""}, "request_id: is empty; must be 1 to 128 characters"),
    (add, {"request_id": "r" * 129}, "request_id: 129 characters; at most 128 are allowed"),
    (add, {"request_id": "a\nb"}, "request_id: holds a control character"),
    (add, {"user_id": ""}, "user_id: is empty; must be 1 to 256 characters"),
    (add, {"user_id": "u" * 257}, "user_id: 257 characters; at most 256 are allowed"),
    (add, {"user_id": "a\0b"}, "user_id: holds a control character"),
    (add, {"memory": None}, "memory.text: is empty; must be 1 to 8000 characters"),
    (add, {"memory": pb.NewMemory(text="a\0b")}, "memory.text: holds the character NUL"),
    (
        add,
        {"memory": pb.NewMemory(text="\u2003\u200b\n")},
        "memory.text: is only white space",
    ),
    (
        add,
        {"memory": pb.NewMemory(text="ä" * 8_001)},
        "memory.text: 8001 characters; at most 8000 are allowed",
    ),
    (
        add,
        {"memory": pb.NewMemory(text="T.", occurred_at=Timestamp(seconds=2**60))},
        "memory.occurred_at: is not a time of the years 1 to 9999",
    ),
    (
        add,
        {"memory": pb.NewMemory(text="T.", turn_ids=["t"])},
        "memory.conversation_id: is needed where turn_ids are given",
    ),
    (
        add,
        {"memory": pb.NewMemory(text="T.", conversation_id="c", turn_ids=["t"] * 101)},
        "memory.turn_ids: 101 items; must be 0 to 100",
    ),
    (batch, {"memories": []}, "memories: 0 items; must be 1 to 500"),
    (batch, {"memories": [FACT] * 501}, "memories: 501 items; must be 1 to 500"),
    (update, {"memory_id": ""}, "memory_id: is empty; must be 1 to 128 characters"),
    (update, {"text": " "}, "text: is only white space"),
    (append, {"turns": []}, "turns: 0 items; must be 1 to 500"),
    (append, {"conversation_id": ""}, "conversation_id: is empty; must be 1 to 128 characters"),
    (
        append,
        {"turns": [pb.Turn(speaker="Mira", text="Hi."), pb.Turn(text="Hi.")]},
        "turns[1].speaker: is empty; must be 1 to 128 characters",
    ),
    (
        append,
        {"turns": [pb.Turn(speaker="Mira", text="x" * 32_001)]},
        "turns[0].text: 32001 characters; at most 32000 are allowed",
    ),
    (delete_turns, {"turn_ids": ["t", ""]}, "turn_ids[1]: is empty; must be 1 to 128 characters"),
    (search, {"query": ""}, "query: is empty; must be 1 to 8000 characters"),
    (search, {"k": 201}, "k: 201 is not in 1..200"),
]


@pytest.mark.parametrize(("convert_request", "changes", "message"), REFUSED)
def test_a_request_is_refused_by_field_and_limit(
    convert_request: Callable[..., object], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        convert_request(**changes)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "text", ["x", " x ", "\n\tx", "👩‍👩‍👧", "ä" * 8_000, "<|im_end|>", "x\u200b", "\u0301"]
)
def test_a_text_with_anything_to_see_is_taken_as_it_is(text: str) -> None:
    assert check_text("text", text, 8_000) is text


@given(st.text(min_size=1, max_size=40))
def test_a_checked_identifier_is_never_changed(value: str) -> None:
    try:
        assert check_identifier("id", value, 32) is value
    except InvalidInput:
        assert len(value) > 32 or any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value)


MIRA = UserId("mira")


@given(st.integers(min_value=1, max_value=2**63 - 1))
def test_a_page_token_gives_its_version_back(memory_version: int) -> None:
    token = page_token_of_version(MIRA, memory_version)
    assert version_of_page_token(MIRA, token) == memory_version
    with pytest.raises(InvalidInput, match="for this user"):
        version_of_page_token(UserId("robin"), token)


@given(st.text(max_size=20))
def test_any_other_page_token_is_refused_or_a_version(token: str) -> None:
    try:
        version = version_of_page_token(MIRA, token)
    except InvalidInput:
        return
    assert version >= 0
