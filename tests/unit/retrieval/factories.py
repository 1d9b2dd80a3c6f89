"""Facts, turns and snapshots with small vectors, for tests of retrieval."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch

from inferscale_core.ids import (
    ChunkKey,
    ConversationId,
    FactId,
    ModelRevision,
    TenantId,
    TurnId,
    UserId,
)
from inferscale_core.memory.canonical import user_scope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.recipes import Recipe
from inferscale_core.retrieval import (
    ChunkRules,
    FactEntry,
    MemoryDelta,
    SearchDevice,
    TurnEntry,
    UserSnapshot,
)

DIMENSION = 4
SCOPE = user_scope(TenantId("tenant"), UserId("user"))


def recipe(num_neighbours: int = 3, *, max_fact_tokens: int = 8, **fields: Any) -> Recipe:
    return Recipe("test", num_neighbours=num_neighbours, max_fact_tokens=max_fact_tokens, **fields)


def rules(of: Recipe | None = None, max_prompt_tokens: int = 1000) -> ChunkRules:
    return ChunkRules(
        model_revision=ModelRevision("model@1"),
        recipe=of or recipe(),
        header_key=ChunkKey("shared/header/0"),
        header_tokens=5,
        max_prompt_tokens=max_prompt_tokens,
    )


def empty(of: ChunkRules | None = None, device: SearchDevice | None = None) -> UserSnapshot:
    return UserSnapshot.empty(SCOPE, of or rules(), DIMENSION, device or SearchDevice.host())


def fact(
    fact_id: str,
    memory_version: int,
    *,
    revision: int = 1,
    num_tokens: int = 2,
    turn_ids: tuple[str, ...] = (),
) -> FactEntry:
    return FactEntry(
        ref=FactRef(FactId(fact_id), revision),
        memory_version=memory_version,
        text=f"{fact_id}.{revision}",
        token_ids=tuple(range(num_tokens)),
        conversation_id=ConversationId("talk") if turn_ids else None,
        turn_ids=tuple(TurnId(turn_id) for turn_id in turn_ids),
    )


def turn(turn_id: str, position: int, *, talk: str = "talk", num_tokens: int = 3) -> TurnEntry:
    return TurnEntry(TurnId(turn_id), ConversationId(talk), position, tuple(range(num_tokens)))


def vector_for(entry: FactEntry) -> torch.Tensor:
    """A vector of few possible values, so that ties are common."""
    seed = hashlib.sha256(entry.text.encode()).digest()
    raw = torch.tensor([1.0 + seed[i] % 2 for i in range(DIMENSION)])
    return torch.nn.functional.normalize(raw, dim=0)


def delta(
    facts: Iterable[FactEntry] = (),
    *,
    version: int | None = None,
    removed: Iterable[str] = (),
    turns: Iterable[TurnEntry] = (),
    removed_turns: Iterable[str] = (),
    vectors: Iterable[torch.Tensor] | None = None,
) -> MemoryDelta:
    facts = tuple(facts)
    rows = [vector_for(entry) for entry in facts] if vectors is None else list(vectors)
    newest = max((entry.memory_version for entry in facts), default=0)
    return MemoryDelta(
        memory_version=newest if version is None else version,
        kv_epoch=0,
        facts=facts,
        embeddings=torch.stack(rows) if rows else None,
        removed_facts=frozenset(FactId(fact_id) for fact_id in removed),
        turns=tuple(turns),
        removed_turns=frozenset(TurnId(turn_id) for turn_id in removed_turns),
    )
