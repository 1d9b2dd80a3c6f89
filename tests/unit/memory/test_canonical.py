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
    ChunkSpec,
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
    "prefix_texts": ((FactRef(FactId("f0"), 1), (6, 7)),),
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
        {"prefix_texts": ()},
        {"prefix_texts": ((FactRef(FactId("f0"), 2), (6, 7)),)},
        {"prefix_texts": ((FactRef(FactId("f0"), 1), (67,)),)},
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


def spec(name: str, *injected: str, texts: tuple[str, ...] = ()) -> ChunkSpec:
    refs = tuple(FactRef(FactId(seen), 1) for seen in (*injected, *texts))
    keys = tuple(ChunkKey(f"{SCOPE}/{seen}") for seen in injected)
    return ChunkSpec(FactRef(FactId(name), 1), ChunkKey(f"{SCOPE}/{name}"), refs, keys, (), 1)


def test_dependants_are_found_through_others() -> None:
    specs = [spec("a"), spec("b", "a"), spec("c", "b"), spec("d", "gone"), spec("e", "d")]
    assert dependants([FactId("a")], specs) == {"b", "c"}
    assert dependants([FactId("a"), FactId("b")], specs) == {"c"}
    assert dependants([FactId("gone")], specs) == {"d", "e"}


def test_what_was_seen_as_text_is_seen_itself_and_nothing_through_it() -> None:
    specs = [spec("a"), spec("b", "a"), spec("c", texts=("b",)), spec("d", "c")]
    assert dependants([FactId("a")], specs) == {"b"}
    assert dependants([FactId("b")], specs) == {"c", "d"}


@given(st.lists(st.lists(st.integers(0, 30), max_size=4), max_size=20), st.integers(0, 20))
def test_dependants_are_exactly_those_with_a_path(links: list[list[int]], start: int) -> None:
    prefix = {
        str(n): [str(seen % n) for seen in seens] if n else [] for n, seens in enumerate(links)
    }
    removed = str(start)
    reached = {removed}
    for _ in prefix:
        reached |= {reader for reader, seen in prefix.items() if reached & set(seen)}
    specs = [spec(name, *seen) for name, seen in prefix.items()]
    assert dependants([FactId(removed)], specs) == reached - {removed}
