"""What changed for one user between two memory versions, tokenised."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from inferscale_core.ids import ConversationId, FactId, TurnId
from inferscale_core.memory.facts import FactRef


@dataclass(frozen=True, slots=True)
class FactEntry:
    """The live revision of a fact.

    text: the fact alone. token_ids: its rendered line, as every prompt holds it.
    turn_ids: its source, turns of `conversation_id`.
    """

    ref: FactRef
    memory_version: int
    text: str
    token_ids: tuple[int, ...]
    conversation_id: ConversationId | None = None
    turn_ids: tuple[TurnId, ...] = ()

    @property
    def fact_id(self) -> FactId:
        return self.ref.fact_id

    @property
    def order(self) -> tuple[int, FactId]:
        """Place among the user's facts: "earlier" means smaller."""
        return (self.memory_version, self.ref.fact_id)


@dataclass(frozen=True, slots=True)
class TurnEntry:
    """A turn as it stands in an encoding prefix: the tokens of `{speaker}: {text}\\n`."""

    turn_id: TurnId
    conversation_id: ConversationId
    position: int
    token_ids: tuple[int, ...]

    @property
    def place(self) -> tuple[int, TurnId]:
        return (self.position, self.turn_id)


@dataclass(frozen=True, slots=True)
class MemoryDelta:
    """Everything written after some version, up to `memory_version`.

    facts: added and updated ones alike. embeddings: [len(facts), dimension], float32 unit vectors;
    None without facts. The removed may name what the receiver never had.
    """

    memory_version: int
    kv_epoch: int
    facts: tuple[FactEntry, ...] = ()
    embeddings: torch.Tensor | None = field(default=None, compare=False, repr=False)
    removed_facts: frozenset[FactId] = frozenset()
    turns: tuple[TurnEntry, ...] = ()
    removed_turns: frozenset[TurnId] = frozenset()
