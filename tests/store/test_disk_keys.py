"""A user's disk key lives exactly as long as the KV epoch."""

from __future__ import annotations

import asyncio

import pytest
from alembic import command
from sqlalchemy import create_engine, text

import migrations
from inferscale_core.ids import ConversationId, TenantId, UserId
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import NewFact, NewTurn
from inferscale_core.store import EmbeddedPostgres, Store
from migrations.schema import alembic_config
from tests.fixtures_postgres import APP_PASSWORD, APP_ROLE, DIMENSION, Database
from tests.store.factories import a_tenant, a_user, add_fact, vector


async def _current(store: Store, tenant: TenantId, user: UserId) -> DiskKey | None:
    async with store.transaction(tenant) as tx:
        return await tx.disk_keys.current(user)


async def _num_stored(store: Store, tenant: TenantId, user: UserId) -> int:
    async with store.transaction(tenant) as tx:
        query = text("SELECT count(*) FROM disk_keys WHERE user_id = :user_id")
        return int(await tx._session.scalar(query, {"user_id": user}))


async def test_a_key_is_made_when_it_is_first_asked_for_and_then_kept(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    await add_fact(store, tenant, user, "Robin has a dog.")
    assert await _num_stored(store, tenant, user) == 0
    key = await _current(store, tenant, user)
    assert key is not None
    assert key.kv_epoch == 0
    assert await _current(store, tenant, user) == key
    assert await _num_stored(store, tenant, user) == 1


async def test_a_user_whom_nobody_has_written_has_no_key(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    assert await _current(store, tenant, user) is None
    assert await _num_stored(store, tenant, user) == 0


async def test_users_have_different_keys(store: Store) -> None:
    tenant, other = await a_tenant(store), await a_tenant(store)
    users = [(tenant, UserId("mira")), (tenant, UserId("oscar")), (other, UserId("mira"))]
    keys = []
    for tenant_id, user in users:
        await add_fact(store, tenant_id, user, "Robin has a dog.")
        keys.append(await _current(store, tenant_id, user))
    assert len({key.secret for key in keys if key}) == 3


@pytest.mark.parametrize("change", ["delete", "update", "delete turns", "delete with sources"])
async def test_whatever_raises_the_epoch_destroys_the_key_in_its_transaction(
    store: Store, change: str
) -> None:
    tenant, user, talk = await a_tenant(store), a_user(), ConversationId("talk")
    async with store.transaction(tenant) as tx:
        [turn] = await tx.turns.append(user, talk, [NewTurn("Robin", "I have a dog.")])
        new = NewFact("Robin has a dog.", conversation_id=talk, turn_ids=(turn.turn_id,))
        fact = (await tx.facts.add(user, new, vector())).fact
    before = await _current(store, tenant, user)
    async with store.transaction(tenant) as tx:
        if change == "update":
            await tx.facts.update(
                user, fact.fact_id, text="A cat.", occurred_at=None, embedding=vector()
            )
        elif change == "delete turns":
            await tx.turns.delete(user, talk)
        else:
            purge = change == "delete with sources"
            await tx.facts.delete(user, fact.fact_id, purge_sources=purge)
        gone = await tx._session.scalar(text("SELECT count(*) FROM disk_keys"))
        assert gone == 0
    after = await _current(store, tenant, user)
    assert before is not None
    assert after is not None
    assert after.kv_epoch == before.kv_epoch + 1
    assert after.secret != before.secret


async def test_adding_keeps_the_key_and_so_does_a_delete_that_is_rolled_back(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    key = await _current(store, tenant, user)
    await add_fact(store, tenant, user, "Robin has a cat.")

    async def cut_off() -> None:
        async with store.transaction(tenant) as tx:
            await tx.facts.delete(user, fact.fact_id)
            raise RuntimeError("the call is cut off")

    with pytest.raises(RuntimeError):
        await cut_off()
    assert await _current(store, tenant, user) == key


async def test_a_delete_destroys_the_key_of_its_own_user_alone(store: Store) -> None:
    tenant, mira, oscar = await a_tenant(store), a_user(), a_user()
    fact = await add_fact(store, tenant, mira, "Robin has a dog.")
    await add_fact(store, tenant, oscar, "Robin has a dog.")
    await _current(store, tenant, mira)
    kept = await _current(store, tenant, oscar)
    async with store.transaction(tenant) as tx:
        await tx.facts.delete(mira, fact.fact_id)
    assert await _num_stored(store, tenant, mira) == 0
    assert await _current(store, tenant, oscar) == kept


async def test_workers_that_ask_at_once_get_one_key(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    await add_fact(store, tenant, user, "Robin has a dog.")
    keys = await asyncio.gather(*(_current(store, tenant, user) for _ in range(8)))
    assert len(set(keys)) == 1
    assert keys[0] is not None


async def test_a_key_made_beside_deletes_is_always_of_the_present_epoch(store: Store) -> None:
    tenant, user = await a_tenant(store), a_user()
    facts = [await add_fact(store, tenant, user, f"Fact number {n}.") for n in range(12)]

    async def delete_all() -> None:
        for fact in facts:
            async with store.transaction(tenant) as tx:
                await tx.facts.delete(user, fact.fact_id)

    async def ask() -> None:
        for _ in range(12):
            async with store.transaction(tenant) as tx:
                key = await tx.disk_keys.current(user)
                assert key is not None
                query = text(
                    "SELECT k.kv_epoch = u.kv_epoch FROM disk_keys k JOIN users u"
                    " USING (tenant_id, user_id) WHERE user_id = :user_id"
                )
                # None: a delete has destroyed it since, as it may.
                assert await tx._session.scalar(query, {"user_id": user}) in (True, None)

    await asyncio.gather(delete_all(), ask(), ask())
    last = await _current(store, tenant, user)
    assert last is not None
    assert last.kv_epoch == 12


async def test_the_role_of_the_services_cannot_see_another_tenants_key(
    store: Store, database: Database
) -> None:
    tenant, other, user = await a_tenant(store), await a_tenant(store), UserId("mira")
    await add_fact(store, tenant, user, "Robin has a dog.")
    await _current(store, tenant, user)
    with database.app() as connection, connection.transaction():
        connection.execute("SELECT set_config('inferscale.tenant_id', %s, true)", [other])
        query = "SELECT count(*) FROM disk_keys"
        assert connection.execute(query).fetchone() == (0,)
        moved = connection.execute("DELETE FROM disk_keys WHERE tenant_id = %s", [tenant])
        assert moved.rowcount == 0
    assert await _num_stored(store, tenant, user) == 1


def test_keys_never_enter_the_write_ahead_log(database: Database) -> None:
    """Nor, by that, replicas and base backups: all three leave unlogged tables out."""
    with database.admin() as connection:
        query = "SELECT relpersistence::text FROM pg_class WHERE relname = 'disk_keys'"
        assert connection.execute(query).fetchone() == ("u",)


def test_the_step_before_this_table_is_upgraded_with_its_rows(
    postgres_server: EmbeddedPostgres,
) -> None:
    url = postgres_server.create_database("before_disk_keys")
    engine = create_engine(url)
    with engine.connect() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        config.attributes["embedding_dimension"] = DIMENSION
        command.upgrade(config, "20261129_1740")
        connection.execute(
            text(
                "INSERT INTO tenants VALUES ('t', 'T', '{}', 9, 9, 0, now());"
                "INSERT INTO users VALUES ('t', 'mira', 4, 2, 0, now())"
            )
        )
        connection.commit()
    migrations.upgrade(url.render_as_string(False), APP_ROLE, APP_PASSWORD, DIMENSION)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO disk_keys VALUES ('t', 'mira', 2, :secret, now())"),
            {"secret": bytes(32)},
        )
        # As code of before this step would: it knows of no keys.
        connection.execute(text("UPDATE users SET kv_epoch = 3"))
        assert connection.execute(text("SELECT count(*) FROM disk_keys")).scalar_one() == 0
    engine.dispose()
