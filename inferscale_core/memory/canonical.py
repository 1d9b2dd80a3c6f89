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
from collections.abc import Iterable, Sequence
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
_HEADER_PREFIX = f"{HEADER_SCOPE}/"


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """What a fact's chunk must have seen.

    prefix_facts: facts in the prefix in prompt order (header excluded). prefix_keys: their chunks,
    which are injected; empty when the facts stand there as text. turn_ids: conversation turns in
    the prefix, as text. depth: 1 when nothing but the header is injected, else one more than the
    deepest chunk that is.
    """

    fact: FactRef
    key: ChunkKey
    prefix_facts: tuple[FactRef, ...]
    prefix_keys: tuple[ChunkKey, ...]
    turn_ids: tuple[TurnId, ...]
    depth: int

    @property
    def injected_facts(self) -> tuple[FactRef, ...]:
        """Facts of the prefix that were seen through their chunks, and through what those saw."""
        return self.prefix_facts if self.prefix_keys else ()

    @property
    def reads_text(self) -> bool:
        """Whether facts stand in the prefix as text."""
        return bool(self.prefix_facts) and not self.prefix_keys


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
    prefix_texts: Iterable[tuple[FactRef, Sequence[int]]],
    turns: Iterable[tuple[TurnId, Sequence[int]]],
) -> ChunkKey:
    """prefix_keys: chunks that are injected, the header's first. prefix_texts: facts as text."""
    digest = _digest(
        scope,
        model_revision,
        recipe_hash,
        fact.fact_id,
        str(fact.revision),
        ",".join(map(str, token_ids)),
        *prefix_keys,
        *(f"{ref.fact_id}@{ref.revision}:{','.join(map(str, ids))}" for ref, ids in prefix_texts),
        *(f"{turn_id}:{','.join(map(str, ids))}" for turn_id, ids in turns),
    )
    return ChunkKey(f"{scope}/{digest}")


def scope_of(key: ChunkKey) -> UserScope:
    return UserScope(key.rpartition("/")[0])


def behind_header(keys: Sequence[ChunkKey]) -> Sequence[ChunkKey]:
    """The keys without the header's, if that is the first."""
    return keys[1:] if keys and keys[0].startswith(_HEADER_PREFIX) else keys


def dependants(removed: Iterable[FactId], specs: Iterable[ChunkSpec]) -> set[FactId]:
    """Facts whose chunk saw a removed fact, directly or through others; the removed excluded.

    One that saw a fact as text saw nothing through it: that fact's chunk may go and this one stay.
    """
    readers: dict[FactId, list[FactId]] = {}
    gone = set(removed)
    reached: set[FactId] = set()
    for spec in specs:
        fact_id = spec.fact.fact_id
        for seen in spec.injected_facts:
            readers.setdefault(seen.fact_id, []).append(fact_id)
        if fact_id not in gone and any(seen.fact_id in gone for seen in spec.prefix_facts):
            reached.add(fact_id)
    frontier = [*gone, *reached]
    while frontier:
        for reader in readers.get(frontier.pop(), ()):
            if reader not in reached and reader not in gone:
                reached.add(reader)
                frontier.append(reader)
    return reached


def _digest(*parts: str) -> str:
    framed = bytearray()
    for encoded in map(str.encode, parts):
        framed += len(encoded).to_bytes(8, "little")
        framed += encoded
    return hashlib.sha256(framed).hexdigest()[:32]
