"""A real Postgres for tests: one embedded server for the session, one fresh database for a module.

database          migrated, for 8-dimensional embeddings
store             a Store on it, as the role that the services use
database_factory  more databases, of any dimension
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import URL

from inferscale_core.store import EmbeddedPostgres, Store, service_url
from inferscale_core.store.embedded import conninfo
from migrations import upgrade

APP_ROLE = "inferscale_app"
APP_PASSWORD = "app-secret"
DIMENSION = 8


@dataclass(frozen=True)
class Database:
    admin_url: URL
    app_url: URL
    dimension: int

    def admin(self) -> psycopg.Connection[tuple[object, ...]]:
        """A superuser's connection, which sees every tenant."""
        return psycopg.connect(conninfo(self.admin_url), autocommit=True)

    def app(self) -> psycopg.Connection[tuple[object, ...]]:
        """A bare connection of the services' role, with no tenant set."""
        return psycopg.connect(conninfo(self.app_url), autocommit=True)

    def store(self, **options: float) -> Store:
        return Store(self.app_url, embedding_dimension=self.dimension, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="inferscale-postgres-"))
    server = EmbeddedPostgres(folder / "data")
    server.start()
    with psycopg.connect(conninfo(server.admin_url()), autocommit=True) as connection:
        # Tests need no durability, and commits are several times faster without.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def database_factory(postgres_server: EmbeddedPostgres) -> Callable[..., Database]:
    """Migrates once for each dimension, then copies."""
    templates: set[int] = set()
    numbers = itertools.count(1)

    def create(dimension: int = DIMENSION) -> Database:
        template = f"template_{dimension}"
        if dimension not in templates:
            admin_url = postgres_server.create_database(template)
            upgrade(admin_url.render_as_string(False), APP_ROLE, APP_PASSWORD, dimension)
            templates.add(dimension)
        admin_url = postgres_server.create_database(f"test_{next(numbers)}", template=template)
        return Database(admin_url, service_url(admin_url, APP_ROLE, APP_PASSWORD), dimension)

    return create


@pytest.fixture(scope="module")
def database(database_factory: Callable[..., Database]) -> Database:
    return database_factory()


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    store = database.store()
    yield store
    await store.close()
