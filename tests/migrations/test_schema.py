"""The schema that the migrations make, from nothing, is the one that the code describes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from procrastinate.schema import SchemaManager
from sqlalchemy import create_engine

import migrations
from inferscale_core.errors import InvalidInput, Unsupported
from inferscale_core.store import EmbeddedPostgres, Store, service_url
from inferscale_core.store.database import REQUIRED_SCHEMA
from inferscale_core.store.embedded import conninfo
from inferscale_core.store.rows import Base
from migrations.roles import QUEUE_TABLES
from migrations.schema import alembic_config
from tests.fixtures_postgres import APP_PASSWORD, APP_ROLE, DIMENSION, Database

VERSIONS = sorted((Path(migrations.__file__).parent / "versions").glob("2*.py"))


def _rows(database: Database, query: str) -> list[tuple[object, ...]]:
    with database.admin() as connection:
        return connection.execute(query).fetchall()


def test_the_tables_are_those_that_the_code_describes(database: Database) -> None:
    def include(name: str | None, kind: str, _: object) -> bool:
        ours = not (name or "").startswith(("procrastinate", "idx_procrastinate"))
        # The form of this index depends on the dimension, so only the migrations know it.
        return ours and name != "fact_embeddings_hnsw_idx"

    engine = create_engine(database.admin_url)
    with engine.connect() as connection:
        options = {
            "compare_type": True,
            "compare_server_default": True,
            "include_name": include,
        }
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, Base.metadata)
    engine.dispose()
    assert differences == []


def test_every_id_compares_by_code_point(database: Database) -> None:
    columns = _rows(
        database,
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND column_name LIKE '%\\_id' AND data_type = 'text'"
        " AND collation_name IS DISTINCT FROM 'C' AND table_name NOT LIKE 'procrastinate%'",
    )
    assert columns == []


def test_constraint_names_match_and_moments_carry_a_zone(database: Database) -> None:
    found = {
        str(name)
        for (name,) in _rows(
            database,
            "SELECT conname FROM pg_constraint JOIN pg_class c ON c.oid = conrelid"
            " WHERE connamespace = 'public'::regnamespace AND contype IN ('p', 'f', 'u')"
            " AND relname NOT LIKE 'procrastinate%' AND relname <> 'alembic_version'",
        )
    }
    described = {
        str(constraint.name)
        for table in Base.metadata.sorted_tables
        for constraint in table.constraints
    }
    assert found == described
    naive = _rows(
        database,
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type = 'timestamp without time zone'",
    )
    assert naive == []


def test_row_security_is_forced_on_every_table_that_has_a_tenant(database: Database) -> None:
    with_tenant = {
        name
        for (name,) in _rows(
            database,
            "SELECT table_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND column_name = 'tenant_id'",
        )
    }
    forced = {
        name
        for (name,) in _rows(
            database, "SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity"
        )
    }
    described = {t.name for t in Base.metadata.sorted_tables if t.info["is_tenant_table"]}
    assert with_tenant == forced == described


def test_the_services_role_owns_nothing_and_may_do_only_what_is_listed(database: Database) -> None:
    owned = _rows(
        database,
        f"SELECT relname FROM pg_class WHERE relowner = '{APP_ROLE}'::regrole"
        f" UNION SELECT proname FROM pg_proc WHERE proowner = '{APP_ROLE}'::regrole",
    )
    assert owned == []
    [(is_strong,)] = _rows(
        database,
        "SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb FROM pg_roles"
        f" WHERE rolname = '{APP_ROLE}'",
    )
    assert not is_strong
    granted = {
        (str(table), str(privileges))
        for table, privileges in _rows(
            database,
            "SELECT table_name, string_agg(privilege_type, ', ' ORDER BY privilege_type)"
            f" FROM information_schema.role_table_grants WHERE grantee = '{APP_ROLE}'"
            " GROUP BY table_name",
        )
    }
    everything = "DELETE, INSERT, SELECT, UPDATE"
    expected = {(table.name, everything) for table in Base.metadata.sorted_tables}
    expected |= {(name, everything) for name in QUEUE_TABLES}
    expected -= {("audit", everything)}
    assert granted == expected | {("audit", "INSERT, SELECT"), ("alembic_version", "SELECT")}


def test_only_the_services_role_may_cross_tenants_and_only_by_four_functions(
    database: Database,
) -> None:
    functions = _rows(
        database,
        "SELECT proname, proconfig::text, has_function_privilege('public', oid, 'EXECUTE'),"
        f" has_function_privilege('{APP_ROLE}', oid, 'EXECUTE') FROM pg_proc"
        " WHERE prosecdef AND pronamespace = 'public'::regnamespace ORDER BY proname",
    )
    path = '{"search_path=pg_catalog, pg_temp"}'
    assert functions == [
        (name, path, False, True)
        for name in (
            "inferscale_end_history",
            "inferscale_end_worker",
            "inferscale_find_api_key",
            "inferscale_users_of_model",
        )
    ]


def test_an_upgrade_can_be_repeated_and_run_twice_at_once(
    postgres_server: EmbeddedPostgres,
) -> None:
    url = postgres_server.create_database("upgraded_twice").render_as_string(False)
    with ThreadPoolExecutor(3) as threads:
        runs = [
            threads.submit(migrations.upgrade, url, APP_ROLE, APP_PASSWORD, DIMENSION)
            for _ in range(3)
        ]
        for run in runs:
            run.result(timeout=60)
    migrations.upgrade(url, APP_ROLE, None, DIMENSION)


def test_another_dimension_than_the_database_has_is_refused_with_both_numbers(
    database: Database,
) -> None:
    url = database.admin_url.render_as_string(False)
    with pytest.raises(Unsupported, match="8 dimensions, but 768"):
        migrations.upgrade(url, APP_ROLE, APP_PASSWORD, 768)
    with pytest.raises(InvalidInput, match="16001"):
        migrations.upgrade(url, APP_ROLE, APP_PASSWORD, 16_001)


def test_a_role_that_row_security_does_not_hold_is_refused(
    postgres_server: EmbeddedPostgres,
) -> None:
    url = postgres_server.create_database("wrong_role").render_as_string(False)
    with pytest.raises(Unsupported, match="bypasses row security"):
        migrations.upgrade(url, "postgres", "secret", DIMENSION)
    with pytest.raises(Unsupported, match="does not exist"):
        migrations.upgrade(url, "no_such_role", None, DIMENSION)


@pytest.mark.parametrize(
    ("dimension", "kind"), [(2000, "vector_cosine_ops"), (2001, "halfvec"), (4000, "halfvec")]
)
def test_every_dimension_that_can_be_indexed_is(
    database_factory: Callable[[int], Database], dimension: int, kind: str
) -> None:
    [(definition,)] = _rows(
        database_factory(dimension),
        "SELECT indexdef FROM pg_indexes WHERE indexname = 'fact_embeddings_hnsw_idx'",
    )
    assert kind in str(definition)


def test_above_4000_dimensions_there_is_no_index_and_the_rest_stands(
    database_factory: Callable[[int], Database],
) -> None:
    database = database_factory(4001)
    assert _rows(database, "SELECT 1 FROM pg_indexes WHERE indexname LIKE '%hnsw%'") == []


async def test_an_owner_that_is_no_superuser_serves_too(postgres_server: EmbeddedPostgres) -> None:
    """As on managed Postgres: row security is forced on the owner, and its functions still work."""
    admin_url = postgres_server.create_database("plain_owner")
    with psycopg.connect(conninfo(admin_url), autocommit=True) as connection:
        connection.execute("CREATE ROLE plain_owner LOGIN CREATEROLE PASSWORD 'x'")
        connection.execute("CREATE EXTENSION vector")
        connection.execute("GRANT ALL ON SCHEMA public TO plain_owner")
    owner_url = service_url(admin_url, "plain_owner", "x")
    migrations.upgrade(owner_url.render_as_string(False), "plain_app", "y", DIMENSION)
    store = Store(service_url(admin_url, "plain_app", "y"), embedding_dimension=DIMENSION)
    await store.check()
    from tests.store.factories import a_tenant, a_user, a_worker, add_fact

    tenant, user = await a_tenant(store), a_user()
    fact = await add_fact(store, tenant, user, "Robin has a dog.")
    async with store.transaction(tenant) as tx:
        await tx.api_keys.add("key-1", "", "hash-1")
        await tx.holders.add(user, a_worker().worker_id)
        await tx.facts.delete(user, fact.fact_id)
    await add_fact(store, tenant, user, "Robin has a cat.")
    async with store.system() as system:
        await system.workers.join(a_worker(), lease_s=60, renewal=False)
        assert await system.workers.users_of_model("tiny") == [(tenant, user)]
    async with store.transaction(tenant) as tx:
        assert await tx.holders.list(user) == []
    assert await store.authenticate("hash-1") is not None
    await store.close()
    with psycopg.connect(conninfo(owner_url), autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM facts").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM turns").fetchone() == (0,)


def test_the_job_queue_is_as_the_installed_release_defines_it(
    database: Database, postgres_server: EmbeddedPostgres
) -> None:
    release = postgres_server.create_database("queue_release")
    with psycopg.connect(conninfo(release), autocommit=True) as connection:
        connection.execute(SchemaManager.get_schema().encode())
    queries = (
        "SELECT proname, pg_get_function_identity_arguments(oid),"
        " regexp_replace(prosrc, '\\s+', ' ', 'g')"
        " FROM pg_proc WHERE proname LIKE 'procrastinate%' ORDER BY 1, 2",
        "SELECT table_name, column_name, data_type, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_name LIKE 'procrastinate%' ORDER BY 1, 2",
        "SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'procrastinate%' ORDER BY 1",
        "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"
        " AND tgrelid::regclass::text LIKE 'procrastinate%' ORDER BY 1",
        "SELECT enumtypid::regtype::text, enumlabel FROM pg_enum ORDER BY 1, 2",
    )
    with psycopg.connect(conninfo(release), autocommit=True) as connection:
        for query in queries:
            assert _rows(database, query) == connection.execute(query).fetchall()


def test_steps_are_named_by_minute_in_one_line_and_begin_with_a_lock_timeout() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    revisions = [step.revision for step in reversed(list(script.walk_revisions()))]
    assert revisions == sorted(revisions)
    assert [path.name[:13] for path in VERSIONS] == revisions
    for path in VERSIONS:
        assert re.fullmatch(r"\d{8}_\d{4}_[a-z_]+\.py", path.name)
        assert re.search(
            r"def upgrade\(\) -> None:\n(    dimension = .*\n)?    run = .*\n"
            r"    run\(\"SET LOCAL lock_timeout = '5s'\"\)",
            path.read_text(),
        ), path.name
    assert revisions[-1] == migrations.head_revision() == REQUIRED_SCHEMA


async def test_a_database_without_the_schema_is_refused_with_the_command_to_run(
    postgres_server: EmbeddedPostgres, database: Database
) -> None:
    empty = postgres_server.create_database("never_migrated")
    store = Store(service_url(empty, APP_ROLE, APP_PASSWORD), embedding_dimension=DIMENSION)
    with pytest.raises(Unsupported, match="python -m migrations upgrade"):
        await store.check()
    await store.close()


def test_the_command_upgrades_the_database_of_the_settings(
    postgres_server: EmbeddedPostgres, database: Database, tmp_path: Path
) -> None:
    """Run from another folder, so that the steps must come with the package."""
    admin_url = postgres_server.create_database("by_command")
    environment = {
        "INFERSCALE_DATABASE__ADMIN_URL": admin_url.render_as_string(False),
        "INFERSCALE_DATABASE__URL": service_url(admin_url, APP_ROLE, APP_PASSWORD).render_as_string(
            False
        ),
        "INFERSCALE_EMBEDDER__DIMENSION": "16",
        "PYTHONPATH": str(Path(migrations.__file__).parents[1]),
    }

    def run(command: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "migrations", command],
            env=environment | extra,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("upgrade")
    assert (done.returncode, done.stdout) == (0, f"schema is at {migrations.head_revision()}\n")
    assert done.stderr == ""
    refused = run("upgrade", INFERSCALE_EMBEDDER__DIMENSION="32")
    assert refused.returncode == 1
    assert "16 dimensions, but 32" in refused.stderr
    assert APP_PASSWORD not in refused.stderr
