"""`python -m migrations upgrade`: brings the database of the settings to the newest schema."""

from __future__ import annotations

import argparse
import sys

from sqlalchemy import make_url

from inferscale_core.errors import InferScaleError
from inferscale_core.settings import Settings, WrongSettings, missing, read_settings, variable
from inferscale_core.store import url_problem
from migrations.schema import head_revision, upgrade


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m migrations", description=__doc__)
    parser.add_argument("command", choices=["upgrade", "head"])
    arguments = parser.parse_args()
    if arguments.command == "head":
        print(head_revision())
        return 0
    try:
        _upgrade(read_settings())
    except WrongSettings as exc:
        return exc.report("inferscale migrate")
    except InferScaleError as exc:
        print(f"{exc.code}: {exc}", file=sys.stderr)
        return 1
    print(f"schema is at {head_revision()}")
    return 0


def _upgrade(settings: Settings) -> None:
    database = settings.database
    problems = missing(settings, ("database", "admin_url"), ("database", "url"))
    for field, url in (("admin_url", database.admin_url), ("url", database.url)):
        problem = url_problem(url.get_secret_value()) if url else None
        if problem:
            problems.append(f"{variable('database', field)} {problem}")
    if problems:
        raise WrongSettings(*problems)
    assert database.url is not None, "checked"
    assert database.admin_url is not None, "checked"
    service = make_url(database.url.get_secret_value())
    if not service.username:
        raise WrongSettings(f"{variable('database', 'url')} names no role")
    upgrade(
        database.admin_url.get_secret_value(),
        service.username,
        str(service.password) if service.password else None,
        settings.embedder.dimension,
    )


if __name__ == "__main__":
    sys.exit(main())
