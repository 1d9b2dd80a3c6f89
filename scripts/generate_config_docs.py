"""Write docs/configuration.md from `inferscale_core.settings`, or compare it with --check."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from inferscale_core.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "configuration.md"
HEAD = """\
# Configuration

Written by `scripts/generate_config_docs.py` from `inferscale_core/settings.py`; `make generate`
writes it again and `make check` compares it.

Services read their settings once, at start, from environment variables
`INFERSCALE_<SECTION>__<FIELD>` (two underscores between section and field). With a value that does
not fit, an unknown field in a known section, or without what must be set, a service ends with code
2 and a line on stderr for each, which names the variable and what it may be. Secrets are never
shown. A restart applies a change; nothing is read again while a service runs.
"""
USED_BY = {
    "database": "control and migrations",
    "control": "control",
    "worker": "worker",
    "retention": "control",
    "tls": "control and worker",
    "engine": "worker",
    "recipe": "control and worker; both must state the same",
    "embedder": "control and worker; both must state the same",
    "telemetry": "control and worker",
    "judge": "`inferscale eval`",
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/configuration.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when stale")
    page = "\n".join(render())
    if not parser.parse_args().check:
        PAGE.write_text(page)
        return 0
    if not PAGE.exists() or PAGE.read_text() != page:
        print("docs/configuration.md is not what the settings give; run make generate")
        return 1
    return 0


def render() -> Iterator[str]:
    yield HEAD
    for name, field in Settings.model_fields.items():
        section = field.annotation
        assert isinstance(section, type), name
        assert issubclass(section, BaseModel), name
        yield f"## `{name}`\n"
        yield f"Read by {USED_BY[name]}.\n"
        yield "| variable | value | default | meaning |"
        yield "|---|---|---|---|"
        for key, item in section.model_fields.items():
            yield row(name, key, item)
        yield ""


def row(section: str, key: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    variable = f"INFERSCALE_{section}__{key}".upper()
    return f"| `{variable}` | {value_of(field)} | {default_of(field)} | {meaning} |"


def value_of(field: FieldInfo) -> str:
    """The type in words, with its bounds."""
    kind = word_for(field.annotation)
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(bound, name):,}"
        for bound in field.metadata
        for name, sign in signs.items()
        if getattr(bound, name, None) is not None
    ]
    return ", ".join([kind, *bounds])


def word_for(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if len(parts) == 1:
        return word_for(parts[0])
    if get_origin(annotation) in (tuple, list):
        return f"JSON list of {word_for(parts[0])}"
    words = {str: "text", int: "integer", float: "number", bool: "true or false"}
    return "secret text" if annotation is SecretStr else words.get(annotation, str(annotation))


def default_of(field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if default is None or default == "":
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    sys.exit(main())
