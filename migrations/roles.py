"""The role that the services use: it owns nothing and cannot step round row security."""

from __future__ import annotations

import psycopg
from psycopg import sql

from inferscale_core.errors import Unsupported
from inferscale_core.store.rows import Base

QUEUE_TABLES = (
    "procrastinate_jobs",
    "procrastinate_events",
    "procrastinate_workers",
    "procrastinate_periodic_defers",
)


def ensure_role(
    connection: psycopg.Connection[tuple[object, ...]], role: str, password: str | None
) -> None:
    """Creates the role, or sets its password. Without a password the role must exist already.

    Raises Unsupported when the role could see every tenant's rows. The password is hashed here, so
    that the server's log never shows it.
    """
    found = connection.execute(
        "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = %s", [role]
    ).fetchone()
    if found and found[0]:
        raise Unsupported(f"role {role!r} is a superuser or bypasses row security: name another")
    if password is None:
        if not found:
            raise Unsupported(f"role {role!r} does not exist and no password was given for it")
        return
    verifier = connection.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    ).decode()
    statement = (
        "ALTER ROLE {role} LOGIN PASSWORD {verifier}"
        if found
        else "CREATE ROLE {role} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE"
        " PASSWORD {verifier}"
    )
    connection.execute(
        sql.SQL(statement).format(role=sql.Identifier(role), verifier=sql.Literal(verifier))
    )


def grant(connection: psycopg.Connection[tuple[object, ...]], role: str) -> None:
    """Gives the role exactly what the services need. Can be repeated."""
    statements = [
        "GRANT USAGE ON SCHEMA public TO {role}",
        "GRANT SELECT ON alembic_version TO {role}",
    ]
    for table in Base.metadata.sorted_tables:
        statements.append(f"REVOKE ALL ON {table.name} FROM {{role}}")
        statements.append(f"GRANT {table.info['privileges']} ON {table.name} TO {{role}}")
    for name in QUEUE_TABLES:
        statements.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {{role}}")
        statements.append(f"GRANT USAGE ON SEQUENCE {name}_id_seq TO {{role}}")
    for function in (
        "inferscale_find_api_key(text)",
        "inferscale_users_of_model(text, text, text, integer)",
        "inferscale_end_worker(text)",
        "inferscale_end_history(integer, integer, integer)",
    ):
        statements.append(f"GRANT EXECUTE ON FUNCTION {function} TO {{role}}")
    for statement in statements:
        connection.execute(sql.SQL(statement).format(role=sql.Identifier(role)))
