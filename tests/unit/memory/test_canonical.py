from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferscale_core.ids import (
    ChunkKey,
    FactId,
    ModelRevision,
    RecipeHash,
    TenantId,
    TurnId,
    UserId,
)
from inferscale_core.memory.canonical import (
    HEADER_SCOPE,
    chunk_key,
    dependants,
    header_key,
    scope_of,
    user_scope,
)
from inferscale_core.memory.facts import FactRef

SCOPE = user_scope(TenantId("acme"), UserId("robin"))
DEFAULT = {
    "scope": SCOPE,
    "model_revision": ModelRevision("tiny@1"),
    "recipe_hash": RecipeHash("abc"),
    "fact": FactRef(FactId("f1"), 1),
    "token_ids": (1, 2, 3),
    "prefix_keys": (ChunkKey(f"{SCOPE}/a"), ChunkKey(f"{SCOPE}/b")),
    "turns": ((TurnId("t1"), (4, 5)),),
}


@pytest.mark.parametrize(
    "change",
    [
        {"scope": user_scope(TenantId("other"), UserId("robin"))},
        {"scope": user_scope(TenantId("acme"), UserId("kim"))},
        {"model_revision": ModelRevision("tiny@2")},
        {"recipe_hash": RecipeHash("abd")},
        {"fact": FactRef(FactId("f2"), 1)},
        {"fact": FactRef(FactId("f1"), 2)},
        {"token_ids": (1, 23)},
        {"token_ids": (12, 3)},
        {"prefix_keys": (ChunkKey(f"{SCOPE}/b"), ChunkKey(f"{SCOPE}/a"))},
        {"prefix_keys": (ChunkKey(f"{SCOPE}/a"),)},
        {"turns": ()},
        {"turns": ((TurnId("t2"), (4, 5)),)},
        {"turns": ((TurnId("t1"), (45,)),)},
    ],
)
def test_everything_that_a_chunk_saw_changes_its_key(change: dict[str, object]) -> None:
    assert chunk_key(**DEFAULT | change) != chunk_key(**DEFAULT)  # type: ignore[arg-type]
    assert chunk_key(**DEFAULT) == chunk_key(**DEFAULT)  # type: ignore[arg-type]


def test_a_key_begins_with_its_tenant_and_hides_the_user() -> None:
    key = chunk_key(**DEFAULT)  # type: ignore[arg-type]
    assert key.startswith("acme/")
    assert "robin" not in key
    assert scope_of(key) == SCOPE


def test_tenant_and_user_cannot_be_confused() -> None:
    assert user_scope(TenantId("a"), UserId("bc")) != user_scope(TenantId("ab"), UserId("c"))


def test_the_headers_chunk_belongs_to_nobody() -> None:
    key = header_key(ModelRevision("tiny@1"), RecipeHash("abc"), (1, 2))
    assert scope_of(key) == HEADER_SCOPE
    assert key != header_key(ModelRevision("tiny@1"), RecipeHash("abc"), (12,))


def test_dependants_are_found_through_others() -> None:
    a, b, c, d, e = (FactId(name) for name in "abcde")
    prefix = {a: [], b: [a], c: [b], d: [], e: [d]}
    assert dependants([a], prefix) == {b, c}
    assert dependants([a, b], prefix) == {c}
    assert dependants([FactId("gone")], {**prefix, d: [FactId("gone")]}) == {d, e}


@given(st.lists(st.lists(st.integers(0, 30), max_size=4), max_size=20), st.integers(0, 20))
def test_dependants_are_exactly_those_with_a_path(links: list[list[int]], start: int) -> None:
    prefix = {
        FactId(str(n)): [FactId(str(seen % n)) for seen in seens] if n else []
        for n, seens in enumerate(links)
    }
    removed = FactId(str(start))
    reached = {removed}
    for _ in prefix:
        reached |= {reader for reader, seen in prefix.items() if reached & set(seen)}
    assert dependants([removed], prefix) == reached - {removed}
