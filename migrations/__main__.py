"""`python -m migrations upgrade`: brings the database of the settings to the newest schema."""

from __future__ import annotations

import argparse
import sys

from sqlalchemy import make_url

from inferscale_core.errors import InferScaleError, InvalidInput
from inferscale_core.settings import Settings
from migrations.schema import head_revision, upgrade


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m migrations", description=__doc__)
    parser.add_argument("command", choices=["upgrade", "head"])
    arguments = parser.parse_args()
    if arguments.command == "head":
        print(head_revision())
        return 0
    try:
        _upgrade(Settings())
    except InferScaleError as exc:
        print(f"{exc.code}: {exc}", file=sys.stderr)
        return 1
    print(f"schema is at {head_revision()}")
    return 0


def _upgrade(settings: Settings) -> None:
    database = settings.database
    if database.admin_url is None or database.url is None:
        raise InvalidInput(
            "database", "set INFERSCALE_DATABASE__ADMIN_URL and INFERSCALE_DATABASE__URL"
        )
    service = make_url(database.url.get_secret_value())
    if not service.username:
        raise InvalidInput("database.url", "names no role")
    upgrade(
        database.admin_url.get_secret_value(),
        service.username,
        str(service.password) if service.password else None,
        settings.embedder.dimension,
    )


if __name__ == "__main__":
    sys.exit(main())
