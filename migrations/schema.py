"""Brings a database to the newest schema, and the services' role to its privileges."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from inferscale_core.errors import InvalidInput, Unsupported
from inferscale_core.store.failures import translated
from migrations.roles import ensure_role, grant

MIN_SERVER = 150_000
"""Postgres 15: no role may create tables in the public schema by default."""

MIN_PGVECTOR = (0, 8)
"""Iterative scans, without which a filtered HNSW search returns too few rows."""

_UPGRADE_LOCK = 7_700_131_072
"""Any fixed number: two processes that upgrade at once take turns."""


def upgrade(
    admin_url: str, app_role: str, app_password: str | None, embedding_dimension: int
) -> None:
    """Runs every step that is missing, each in its own transaction. Can be repeated.

    `admin_url` is an SQLAlchemy URL of the role that is to own the schema. Without `app_password`
    the role `app_role` must exist. Raises Unsupported for an old server, an old pgvector, a role
    that would not be held by row security, or another embedding dimension than the database has;
    Unavailable when the database cannot be reached or a lock is not free in time.
    """
    if not 1 <= embedding_dimension <= 16_000:
        raise InvalidInput("embedding_dimension", f"{embedding_dimension} is not in 1..16000")
    engine = create_engine(admin_url, hide_parameters=True)
    try:
        with translated(), engine.connect() as connection:
            _check_server(connection)
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _UPGRADE_LOCK})
            connection.commit()
            _upgrade(connection, app_role, app_password, embedding_dimension)
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _UPGRADE_LOCK})
            connection.commit()
    finally:
        engine.dispose()


def head_revision() -> str:
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert head is not None, "the versions folder is never empty"
    return head


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option(
        "file_template", "%%(year)d%%(month).2d%%(day).2d_%%(hour).2d%%(minute).2d_%%(slug)s"
    )
    config.set_main_option("timezone", "UTC")
    return config


def _upgrade(
    connection: Connection, app_role: str, app_password: str | None, embedding_dimension: int
) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    config.attributes["embedding_dimension"] = embedding_dimension
    command.upgrade(config, "head")
    _check_pgvector(connection)
    _check_dimension(connection, embedding_dimension)
    driver = connection.connection.driver_connection
    assert driver is not None
    ensure_role(driver, app_role, app_password)
    grant(driver, app_role)
    connection.commit()


def _check_server(connection: Connection) -> None:
    version = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    connection.rollback()
    if version < MIN_SERVER:
        raise Unsupported(f"Postgres {version // 10_000} is too old: 15 or later is needed")


def _check_pgvector(connection: Connection) -> None:
    found = connection.execute(
        text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    ).scalar_one()
    if tuple(map(int, found.split(".")[:2])) < MIN_PGVECTOR:
        raise Unsupported(f"pgvector {found} is too old: 0.8 or later is needed")


def _check_dimension(connection: Connection, wanted: int) -> None:
    """A database keeps the dimension it was made with: its vectors came from that embedder."""
    actual = connection.execute(
        text(
            "SELECT atttypmod FROM pg_attribute"
            " WHERE attrelid = 'fact_embeddings'::regclass AND attname = 'embedding'"
        )
    ).scalar_one()
    if actual != wanted:
        raise Unsupported(
            f"the database holds embeddings of {actual} dimensions,"
            f" but {wanted} were asked for (embedder.dimension)"
        )
