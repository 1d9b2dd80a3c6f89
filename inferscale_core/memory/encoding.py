"""How far the encoding of a fact has come, for each model revision and recipe."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from inferscale_core.ids import ModelRevision, RecipeHash, TurnId
from inferscale_core.memory.facts import FactRef


class EncodeState(StrEnum):
    """DROPPED: the chunk had seen something that is gone, and its fact is queued again."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class EncodeTarget:
    """What a fact is encoded for: `model` is the name that tenants list.

    The other fields are empty while no worker of that model has ever joined.
    """

    model: str
    model_revision: ModelRevision = ModelRevision("")
    recipe: str = ""
    recipe_hash: RecipeHash = RecipeHash("")


@dataclass(frozen=True, slots=True)
class EncodeStatus:
    """`reason` is empty unless failed or dropped: an error code, behind `too_long` with figures."""

    fact: FactRef
    target: EncodeTarget
    state: EncodeState
    updated_at: datetime
    reason: str = ""
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EncodeResult:
    """What a worker reports of one fact: DONE or FAILED, and what the chunk saw directly.

    saw_as_text: the facts of its prefix stood there as text, and not as their chunks.
    """

    fact: FactRef
    target: EncodeTarget
    state: EncodeState
    reason: str = ""
    chunk_digest: str = ""
    num_tokens: int = 0
    prefix_facts: tuple[FactRef, ...] = ()
    prefix_turn_ids: tuple[TurnId, ...] = ()
    saw_as_text: bool = False
