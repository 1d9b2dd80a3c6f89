"""What may stand in a database URL of the settings."""

from __future__ import annotations

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

DRIVER = "postgresql+psycopg"
_EXAMPLE = f"{DRIVER}://role:password@host/database"


def url_problem(url: str) -> str | None:
    """What is wrong with it, without a word of it, since it holds a password. None: nothing."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        return f"is no database URL; one looks like {_EXAMPLE}"
    return None if parsed.drivername == DRIVER else f"must begin with {DRIVER}://, as {_EXAMPLE}"
