"""Exact search, and vectors that may not enter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from inferscale_core.errors import InvalidInput, Unsupported
from inferscale_core.ids import FactId, TenantId, UserId
from inferscale_core.memory.facts import NewFact
from inferscale_core.store import Embedding, Store
from tests.fixtures_postgres import Database
from tests.store.factories import a_tenant, a_user, add_fact, vector

Vectors = npt.NDArray[np.float32]


async def _fill(
    store: Store,
    tenant: TenantId,
    user: UserId,
    vectors: Vectors,
) -> list[FactId]:
    items = [(NewFact(f"Fact {n} of {user}."), row) for n, row in enumerate(vectors)]
    async with store.transaction(tenant) as tx:
        outcomes = await tx.facts.add_many(user, items)
    return [outcome.fact.fact_id for outcome in outcomes]  # type: ignore[union-attr]


def _expected(ids: list[FactId], vectors: Vectors, query: Embedding) -> list[FactId]:
    scores = vectors.astype(np.float64) @ query.astype(np.float64)
    scores /= np.linalg.norm(vectors.astype(np.float64), axis=1)
    return [ids[i] for i in sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))]


@contextlib.contextmanager
def index_preferred(database: Database) -> Iterator[None]:
    """New connections of the services' role read by the HNSW index wherever a query allows it."""
    with database.admin() as connection:
        for setting in ("enable_sort", "enable_seqscan", "enable_bitmapscan"):
            connection.execute(f"ALTER ROLE inferscale_app SET {setting} = off")
        connection.execute("ANALYZE fact_embeddings")
    try:
        yield
    finally:
        with database.admin() as connection:
            connection.execute("ALTER ROLE inferscale_app RESET ALL")


async def test_search_is_exact_beside_many_facts_of_other_users(
    store: Store, database: Database
) -> None:
    """A filtered HNSW search would miss facts here: the nearest 600 are another user's."""
    tenant, user, crowd = await a_tenant(store), a_user(), a_user()
    numbers = np.random.default_rng(3)
    query = vector()
    near = np.tile(query, (600, 1)) + numbers.normal(0, 0.01, (600, 8))
    await _fill(store, tenant, crowd, near.astype(np.float32))
    vectors = numbers.normal(0, 1, (150, 8)).astype(np.float32)
    ids = await _fill(store, tenant, user, vectors)
    await store.close()
    with database.admin() as connection:
        connection.execute("DROP INDEX fact_embeddings_user_idx")
    with index_preferred(database):
        async with store.transaction(tenant) as tx:
            found = await tx.facts.nearest(user, query, limit=100)
        await store.close()
    assert [item.fact.fact_id for item in found] == _expected(ids, vectors, query)[:100]
    nearest = vectors[ids.index(found[0].fact.fact_id)]
    cosine = float(nearest @ query / np.linalg.norm(nearest))
    assert found[0].score == pytest.approx(cosine, abs=1e-6)


async def test_equal_distances_go_to_the_older_fact(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    vectors = np.stack([vector(1, 1), vector(1), vector(2), vector(1), vector(4)])
    ids = await _fill(store, tenant, user, vectors)
    async with store.transaction(tenant) as tx:
        found = await tx.facts.nearest(user, vector(), limit=3)
    assert [item.fact.fact_id for item in found] == [ids[1], ids[2], ids[3]]
    assert [item.score for item in found] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("dimension", [8, 3072])
async def test_the_index_serves_large_users_at_every_dimension(
    database_factory: Callable[..., Database], dimension: int
) -> None:
    database = database_factory(dimension)
    store = database.store()
    tenant, user = await a_tenant(store), a_user()
    numbers = np.random.default_rng(5)
    vectors = numbers.normal(0, 1, (60, dimension)).astype(np.float32)
    ids = await _fill(store, tenant, user, vectors)
    query = vectors[17] + np.float32(0.01)
    await store.close()
    with index_preferred(database):
        async with store.transaction(tenant) as tx:
            found = await tx.facts.nearest(user, query, limit=5, exact_up_to=10)
        await store.close()
    assert [item.fact.fact_id for item in found] == _expected(ids, vectors, query)[:5]
    with database.admin() as connection:
        [(definition, num_scans)] = connection.execute(
            "SELECT pg_get_indexdef(indexrelid), idx_scan FROM pg_stat_user_indexes"
            " WHERE indexrelname = 'fact_embeddings_hnsw_idx'"
        ).fetchall()
    assert num_scans == 1
    assert ("halfvec" in str(definition)) == (dimension > 2000)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (np.zeros(8), "zero"),
        (np.full(8, np.nan), "NaN"),
        (np.array([np.inf] + [0.0] * 7), "infinite"),
        (np.full(8, 1e300), "infinite"),
        (np.ones(7), "(7,)"),
        (np.ones((1, 8)), "(1, 8)"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
async def test_bad_vectors_never_reach_the_index(
    store: Store, bad: Embedding, problem: str
) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        for attempt in (
            tx.facts.add(user, NewFact("Robin has a cat."), bad),
            tx.facts.nearest(user, bad, limit=1),
            tx.facts.update(user, fact.fact_id, text="No.", occurred_at=None, embedding=bad),
        ):
            with pytest.raises(InvalidInput) as refusal:
                await attempt
            assert refusal.value.field == "embedding"
            assert problem in refusal.value.problem
        assert [f.text for f in await tx.facts.page(user, limit=9)] == ["Robin has a dog."]


async def test_an_embedder_of_another_dimension_than_the_database_is_refused_with_both_numbers(
    database: Database,
) -> None:
    store = Store(database.app_url, embedding_dimension=768)
    with pytest.raises(Unsupported, match=r"of 8 dimensions.*gives 768"):
        await store.check()
    await store.close()
