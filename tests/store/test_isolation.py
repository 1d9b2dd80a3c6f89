"""Row security holds for the role that the services use, whatever a query forgets."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import text

from inferscale_core.errors import StoreError, Unsupported
from inferscale_core.ids import ConversationId, RequestId, TenantId
from inferscale_core.memory.facts import NewFact, NewTurn
from inferscale_core.store import Store
from inferscale_core.store.rows import Base
from tests.fixtures_postgres import Database
from tests.store.factories import (
    a_tenant,
    a_user,
    a_worker,
    done,
    record,
    vector,
)

TENANT_TABLES = sorted(t.name for t in Base.metadata.sorted_tables if t.info["is_tenant_table"])


async def _a_tenant_with_a_row_in_every_table(store: Store) -> TenantId:
    tenant, user = await a_tenant(store), a_user()
    async with store.transaction(tenant) as tx:
        await tx.api_keys.add(f"key-{tenant}", "", f"hash-{tenant}")
        await tx.requests.claim(RequestId("r1"), "add_memory", "h1")
        await tx.audit.record("key-1", "add_memory")
        [turn] = await tx.turns.append(user, ConversationId("talk"), [NewTurn("Robin", "Hi.")])
        a, b, gone = [
            (await tx.facts.add(user, NewFact(text), vector())).fact for text in ("A.", "B.", "C.")
        ]
        await tx.holders.add(user, a_worker().worker_id)
        await tx.facts.delete(user, gone.fact_id)
        await tx.disk_keys.current(user)
    await record(store, tenant, user, done(a), done(b, a, turn_ids=[turn.turn_id]))
    return tenant


@pytest.mark.parametrize("table", TENANT_TABLES)
async def test_a_query_without_a_tenant_sees_and_changes_its_own_tenant_alone(
    store: Store, database: Database, table: str
) -> None:
    tenant, other = [await _a_tenant_with_a_row_in_every_table(store) for _ in range(2)]
    with database.admin() as connection:
        [(total,)] = connection.execute(
            f"SELECT count(DISTINCT tenant_id) FROM {table} WHERE tenant_id = ANY (%s)",
            [[tenant, other]],
        ).fetchall()
    assert total == 2, "each table holds rows of both, or this test shows nothing"
    with database.app() as connection, connection.transaction():
        connection.execute("SELECT set_config('inferscale.tenant_id', %s, true)", [tenant])
        seen = connection.execute(f"SELECT DISTINCT tenant_id FROM {table}").fetchall()
        assert seen == [(tenant,)]
        if table != "audit":
            moved = connection.execute(
                f"UPDATE {table} SET tenant_id = tenant_id WHERE tenant_id = %s",
                [other],
            )
            assert moved.rowcount == 0


@pytest.mark.parametrize("table", TENANT_TABLES)
async def test_a_connection_with_no_tenant_set_sees_no_row(
    store: Store, database: Database, table: str
) -> None:
    await _a_tenant_with_a_row_in_every_table(store)
    with database.app() as connection:
        query = f"SELECT count(*) FROM {table}"
        assert connection.execute(query).fetchone() == (0,)
        with connection.transaction():
            connection.execute("SELECT set_config('inferscale.tenant_id', 'some-tenant', true)")
        # The setting is the empty string from here on, and no longer null.
        assert connection.execute(query).fetchone() == (0,)


async def test_a_row_cannot_be_written_for_another_tenant(store: Store, database: Database) -> None:
    tenant, other = await a_tenant(store), await a_tenant(store)
    with database.app() as connection:
        for statement in (
            "INSERT INTO users (tenant_id, user_id, created_at) VALUES (%s, 'u', now())",
            "UPDATE tenants SET tenant_id = %s",
        ):
            with connection.transaction(force_rollback=True):
                connection.execute("SELECT set_config('inferscale.tenant_id', %s, true)", [tenant])
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement, [other])


async def test_a_transaction_leaves_no_tenant_behind_on_its_connection(database: Database) -> None:
    store = database.store(pool_size=1)
    tenant = await _a_tenant_with_a_row_in_every_table(store)
    async with store.transaction(tenant) as tx:
        assert (await tx.tenants.get()).num_facts == 2
    async with store.system() as system:
        for table in TENANT_TABLES:
            rows = await system.session.execute(text(f"SELECT 1 FROM {table}"))
            assert rows.all() == []
    await store.close()


async def test_the_audit_trail_cannot_be_rewritten(store: Store) -> None:
    tenant = await _a_tenant_with_a_row_in_every_table(store)
    for statement in ("DELETE FROM audit", "UPDATE audit SET actor = 'nobody'"):
        with pytest.raises(StoreError, match="42501"):
            async with store.transaction(tenant) as tx:
                await tx._session.execute(text(statement))


async def test_a_role_that_row_security_does_not_hold_is_refused(database: Database) -> None:
    store = Store(database.admin_url, embedding_dimension=database.dimension)
    with pytest.raises(Unsupported, match="bypasses row security"):
        await store.check()
    await store.close()


async def test_the_services_role_passes_the_check(store: Store) -> None:
    await store.check()
