"""What a caller asks of a user's memory, checked for everything that needs no database.

`content` is a hash of all that a request says: a request id may be repeated with the same content
and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.errors import InvalidInput
from inferscale_core.ids import ConversationId, FactId, RequestId, TurnId, UserId
from inferscale_core.memory.facts import NewFact, NewTurn


@dataclass(frozen=True, slots=True)
class AddMemory:
    request_id: RequestId
    content: str
    user_id: UserId
    fact: NewFact


@dataclass(frozen=True, slots=True)
class BatchAddMemories:
    """An item that cannot be stored stands here as the reason."""

    request_id: RequestId
    content: str
    user_id: UserId
    items: tuple[NewFact | InvalidInput, ...]


@dataclass(frozen=True, slots=True)
class ListMemories:
    """`after_version`: the memory version that ended the page before."""

    user_id: UserId
    page_size: int
    after_version: int


@dataclass(frozen=True, slots=True)
class UpdateMemory:
    """`statement`: the text and date that replace the fact's own. `expected_revision` is None when
    the caller skips the check.
    """

    request_id: RequestId
    content: str
    user_id: UserId
    fact_id: FactId
    expected_revision: int | None
    statement: NewFact


@dataclass(frozen=True, slots=True)
class DeleteMemory:
    request_id: RequestId
    content: str
    user_id: UserId
    fact_id: FactId
    purge_sources: bool


@dataclass(frozen=True, slots=True)
class SearchMemories:
    user_id: UserId
    query: str
    k: int
    min_memory_version: int


@dataclass(frozen=True, slots=True)
class AppendTurns:
    request_id: RequestId
    content: str
    user_id: UserId
    conversation_id: ConversationId
    turns: tuple[NewTurn, ...]


@dataclass(frozen=True, slots=True)
class DeleteTurns:
    """`turn_ids` is None for every turn of the conversation."""

    request_id: RequestId
    content: str
    user_id: UserId
    conversation_id: ConversationId
    turn_ids: tuple[TurnId, ...] | None
