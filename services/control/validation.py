"""What every request field is checked against. Each check names the field, the limit and the value.

Lengths are in characters (Unicode code points), never in bytes. Nothing is trimmed or cut: what
passes is stored as it came.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

from inferscale_core.errors import InvalidInput

MAX_REQUEST_ID = 128
MAX_USER_ID = 256
MAX_REFERENCE_ID = 128
"""Conversations, turns, facts, receipts and keys."""

_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}

_T = TypeVar("_T")


def check_identifier(field: str, value: str, max_length: int = MAX_REFERENCE_ID) -> str:
    """An id of the caller's choice: 1 to `max_length` characters, no control characters."""
    _check_length(field, value, max_length)
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidInput(field, "holds a control character")
    return value


def check_text(field: str, value: str, max_length: int) -> str:
    """1 to `max_length` characters of which one is visible. Tabs and line ends are allowed.

    The character NUL is refused, since Postgres cannot store it.
    """
    _check_length(field, value, max_length)
    if "\0" in value:
        raise InvalidInput(field, "holds the character NUL")
    if all(unicodedata.category(character) in _INVISIBLE for character in value):
        raise InvalidInput(field, "is only white space")
    return value


def check_length(field: str, value: str, max_length: int) -> str:
    """1 to `max_length` characters, whatever they are."""
    _check_length(field, value, max_length)
    return value


def check_label(field: str, value: str, max_length: int) -> str:
    """Up to `max_length` characters; may be empty."""
    if not value:
        return value
    return check_identifier(field, value, max_length)


def check_tenant_id(field: str, value: str) -> str:
    if not _TENANT_ID.fullmatch(value):
        raise InvalidInput(
            field,
            f"{value[:80]!r} is not 3 to 63 lower case letters, digits and hyphens"
            " that start and end with a letter or digit",
        )
    return value


def check_count(field: str, items: Sequence[_T], *, minimum: int, maximum: int) -> Sequence[_T]:
    if not minimum <= len(items) <= maximum:
        raise InvalidInput(field, f"{len(items)} items; must be {minimum} to {maximum}")
    return items


def check_range(field: str, value: int, *, minimum: int, maximum: int) -> int:
    if not minimum <= value <= maximum:
        raise InvalidInput(field, f"{value} is not in {minimum}..{maximum}")
    return value


def check_number(field: str, value: float, *, minimum: float, maximum: float) -> float:
    """Refuses NaN too, which compares false with everything."""
    if not minimum <= value <= maximum:
        raise InvalidInput(field, f"{value:g} is not in {minimum:g}..{maximum:g}")
    return value


def _check_length(field: str, value: str, max_length: int) -> None:
    if not value:
        raise InvalidInput(field, f"is empty; must be 1 to {max_length} characters")
    if len(value) > max_length:
        raise InvalidInput(field, f"{len(value)} characters; at most {max_length} are allowed")
