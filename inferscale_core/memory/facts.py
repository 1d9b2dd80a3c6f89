"""Facts, turns and what a caller may say about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from inferscale_core.ids import ConversationId, FactId, TurnId, UserId


@dataclass(frozen=True, slots=True)
class FactRef:
    """One revision of one fact: what provenance and chunk keys name."""

    fact_id: FactId
    revision: int


@dataclass(frozen=True, slots=True)
class Fact:
    """The live revision of a fact.

    `memory_version` is the user's version at which this revision was written; it orders the facts
    of a user for encoding, so an update moves a fact to the end. Times are aware UTC.
    """

    fact_id: FactId
    user_id: UserId
    text: str
    revision: int
    memory_version: int
    created_at: datetime
    updated_at: datetime
    occurred_at: datetime | None = None
    conversation_id: ConversationId | None = None
    turn_ids: tuple[TurnId, ...] = ()

    @property
    def ref(self) -> FactRef:
        return FactRef(self.fact_id, self.revision)


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact as the caller states it, checked for length but not yet stored."""

    text: str
    occurred_at: datetime | None = None
    conversation_id: ConversationId | None = None
    turn_ids: tuple[TurnId, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation. `position` counts from 0 within the conversation."""

    turn_id: TurnId
    conversation_id: ConversationId
    position: int
    speaker: str
    text: str
    memory_version: int
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn as the caller states it. Without an id it is given one."""

    speaker: str
    text: str
    occurred_at: datetime | None = None
    turn_id: TurnId | None = None
