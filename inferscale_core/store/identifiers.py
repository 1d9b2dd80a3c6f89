"""Ids that sort by age, and hashes of content."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
import unicodedata
from datetime import UTC, datetime

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_ID_LENGTH = 26


class _Clock:
    """Never gives the same number twice in one process, and never a smaller one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> int:
        """48 bits of milliseconds before 80 random bits, or the last number plus one."""
        now = time.time_ns() // 1_000_000 << _RANDOM_BITS
        with self._lock:
            self._last = max(self._last + 1, now | secrets.randbits(_RANDOM_BITS - 1))
            return self._last


_clock = _Clock()


def new_id() -> str:
    """A ULID: 26 characters that sort by the millisecond of their making, here strictly by age."""
    value = _clock.next()
    shifts = range((_ID_LENGTH - 1) * 5, -1, -5)
    return "".join(_ALPHABET[value >> shift & 31] for shift in shifts)


def content_hash(*parts: object) -> str:
    """SHA-256 over the parts' text, each with its length, so that no two lists read the same."""
    hasher = hashlib.sha256()
    for part in parts:
        encoded = str(part).encode("utf-8", "surrogatepass")
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.hexdigest()


def statement_hash(text: str, occurred_at: datetime | None) -> str:
    """Equal for two statements that read the same to the model.

    Recipes write the day of `occurred_at` and no hour, so the day in UTC counts. Surrounding white
    space and the Unicode form of a character do not count. Case, inner spaces and punctuation do.
    """
    day = occurred_at.astimezone(UTC).date().isoformat() if occurred_at else ""
    return content_hash(unicodedata.normalize("NFC", text.strip()), day)
