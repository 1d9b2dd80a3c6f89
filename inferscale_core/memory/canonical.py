"""The one chunk that a fact should have, named by all that it may see.

A chunk's digest covers the model revision, the recipe, the fact's revision and tokens, and the
digests of what stands in its prefix, in order, so it covers what those saw as well. It is a
function of the user's live facts alone. A delete or an update therefore changes the digest of
every dependant, directly or through others: a chunk that saw the fact can no longer be asked for,
whatever a cache still holds. Dropping and zeroing it is then housekeeping that a receipt can count.

    header ◄── A ◄── B ◄── C       delete A:   digest(B) and digest(C) change, header's does not
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inferscale_core.ids import (
    ChunkKey,
    FactId,
    ModelRevision,
    RecipeHash,
    TenantId,
    TurnId,
    UserId,
    UserScope,
)
from inferscale_core.memory.facts import FactRef

HEADER_SCOPE = UserScope("shared/header")


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """What a fact's chunk must have seen.

    prefix_facts and prefix_keys: facts in the prefix in prompt order (header excluded), and their
    chunks. turn_ids: conversation turns in the prefix, as text. depth: 1 without facts in the
    prefix, else one more than the deepest of them.
    """

    fact: FactRef
    key: ChunkKey
    prefix_facts: tuple[FactRef, ...]
    prefix_keys: tuple[ChunkKey, ...]
    turn_ids: tuple[TurnId, ...]
    depth: int


def user_scope(tenant_id: TenantId, user_id: UserId) -> UserScope:
    """`tenant/user-digest`. The user's id is hashed: it is the caller's and may be personal."""
    digest = hashlib.sha256(f"{tenant_id}\0{user_id}".encode()).hexdigest()[:32]
    return UserScope(f"{tenant_id}/{digest}")


def header_key(
    model_revision: ModelRevision, recipe_hash: RecipeHash, token_ids: Sequence[int]
) -> ChunkKey:
    """The key of the header's chunk, which holds no tenant's data and is shared by all."""
    digest = _digest("header", model_revision, recipe_hash, *map(str, token_ids))
    return ChunkKey(f"{HEADER_SCOPE}/{digest}")


def chunk_key(
    scope: UserScope,
    model_revision: ModelRevision,
    recipe_hash: RecipeHash,
    fact: FactRef,
    token_ids: Sequence[int],
    prefix_keys: Iterable[ChunkKey],
    turns: Iterable[tuple[TurnId, Sequence[int]]],
) -> ChunkKey:
    digest = _digest(
        scope,
        model_revision,
        recipe_hash,
        fact.fact_id,
        str(fact.revision),
        ",".join(map(str, token_ids)),
        *prefix_keys,
        *(f"{turn_id}:{','.join(map(str, ids))}" for turn_id, ids in turns),
    )
    return ChunkKey(f"{scope}/{digest}")


def scope_of(key: ChunkKey) -> UserScope:
    return UserScope(key.rpartition("/")[0])


def dependants(
    removed: Iterable[FactId], prefix_by_fact: Mapping[FactId, Iterable[FactId]]
) -> set[FactId]:
    """Facts whose chunk saw a removed fact, directly or through others; the removed excluded."""
    readers: dict[FactId, list[FactId]] = {}
    for fact_id, prefix in prefix_by_fact.items():
        for seen in prefix:
            readers.setdefault(seen, []).append(fact_id)
    gone = set(removed)
    reached: set[FactId] = set()
    frontier = list(gone)
    while frontier:
        for reader in readers.get(frontier.pop(), ()):
            if reader not in reached and reader not in gone:
                reached.add(reader)
                frontier.append(reader)
    return reached


def _digest(*parts: str) -> str:
    hasher = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.hexdigest()[:32]
