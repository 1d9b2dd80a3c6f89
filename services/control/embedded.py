"""The Postgres that comes as a wheel, run by control itself: for demos and tests on one machine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from inferscale_core.settings import DatabaseSettings, Settings
from inferscale_core.store import EmbeddedPostgres, service_url
from migrations import upgrade

DATABASE = "inferscale"
ROLE = "inferscale_app"


@contextmanager
def with_database(settings: Settings) -> Iterator[Settings]:
    """The settings with a database to connect to: as they are, or with `embedded_dir` running.

    The embedded one is brought to the newest schema, and its role gets a new password each time.
    """
    folder = settings.database.embedded_dir
    if folder is None or settings.database.url is not None:
        yield settings
        return
    postgres = EmbeddedPostgres(Path(folder))
    postgres.start()
    try:
        admin = postgres.create_database(DATABASE)
        password = secrets.token_urlsafe(24)
        upgrade(admin.render_as_string(False), ROLE, password, settings.embedder.dimension)
        url = SecretStr(service_url(admin, ROLE, password).render_as_string(False))
        database = DatabaseSettings(
            **{**settings.database.model_dump(), "url": url, "listen_url": url}
        )
        yield settings.model_copy(update={"database": database})
    finally:
        postgres.stop()
