"""What a request tells the connector, under `kv_transfer_params` in its `extra_args`.

Plain values, since the engine ships them between processes. Long lists are one string with a line
for each item, since the engine also deep-copies the parameters of every request. The scheduler side
parses them once, and a malformed set never raises there: the request is prefilled as text and a
`rejected` event says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.plans import Span

PARAMS_KEY = "inferscale"
MAX_SPANS = 1024


@dataclass(frozen=True, slots=True)
class Capture:
    """Store the KV of prompt tokens [start, start + num_tokens) as the chunk `key`.

    Done only if everything before `start` that `spans` names was really injected, and only if
    `planned_version` is not older than the newest `Forget` of the scope; refused otherwise.
    `planned_at`: a time (time.monotonic) at which that version was the user's newest.
    `fact` is None for the header, whose chunk is never evicted.
    """

    key: ChunkKey
    start: int
    num_tokens: int
    prefix_keys: tuple[ChunkKey, ...]
    fact: FactRef | None
    planned_version: int
    planned_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop every chunk of these facts in the scope, and every chunk that saw one of them.

    turn_ids do the same for turns. `version` fences captures planned before it.
    """

    scope: UserScope
    fact_ids: tuple[FactId, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """Compare the scope's records on disk with the chunks that its user should have.

    From the answer on the disk tier has, of this scope, those of `wanted` that every rank could
    open, all sealed under the key; the others are gone from the disk and from the directory's disk
    tier. sealed_key: `StoreSecret.seal` of the user's newest `DiskKey`; only ranks can open it.
    planned_version: refused like a capture when something was forgotten after it.
    """

    scope: UserScope
    sealed_key: str = field(repr=False)
    wanted: tuple[ChunkKey, ...]
    planned_version: int


@dataclass(frozen=True, slots=True)
class RequestParams:
    """handle: unique per request, carried by events. spans: contiguous from prompt token 0."""

    handle: str
    spans: tuple[Span, ...] = ()
    capture: Capture | None = None
    forget: Forget | None = None
    adopt: Adopt | None = None

    def to_wire(self) -> dict[str, Any]:
        """The value of `kv_transfer_params`."""
        body: dict[str, Any] = {
            "handle": self.handle,
            "spans": "\n".join(f"{span.key} {span.num_tokens}" for span in self.spans),
        }
        if self.capture:
            capture = self.capture
            body["capture"] = {
                "key": capture.key,
                "start": capture.start,
                "num_tokens": capture.num_tokens,
                "prefix_keys": "\n".join(capture.prefix_keys),
                "fact": [capture.fact.fact_id, capture.fact.revision] if capture.fact else None,
                "planned_version": capture.planned_version,
                "planned_at": capture.planned_at,
            }
        if self.forget:
            forget = self.forget
            body["forget"] = {
                "scope": forget.scope,
                "fact_ids": list(forget.fact_ids),
                "version": forget.version,
            }
        if self.adopt:
            adopt = self.adopt
            body["adopt"] = {
                "scope": adopt.scope,
                "sealed_key": adopt.sealed_key,
                "wanted": "\n".join(adopt.wanted),
                "planned_version": adopt.planned_version,
            }
        return {PARAMS_KEY: body}


class MalformedParams(ValueError):
    """Says which part is wrong. Caught by the scheduler side; never leaves it."""


def params_from_wire(wire: Mapping[str, Any] | None) -> RequestParams | None:
    """None when the request carries none of ours. Raises MalformedParams."""
    if not isinstance(wire, Mapping) or PARAMS_KEY not in wire:
        return None
    body = wire[PARAMS_KEY]
    if not isinstance(body, Mapping):
        raise MalformedParams("not a mapping")
    return RequestParams(
        handle=_text(body, "handle"),
        spans=_spans(body.get("spans", "")),
        capture=_capture(body.get("capture")),
        forget=_forget(body.get("forget")),
        adopt=_adopt(body.get("adopt")),
    )


def _spans(value: Any) -> tuple[Span, ...]:
    """Whole lists at a time: this runs in the scheduler, once for each request."""
    if not isinstance(value, str):
        raise MalformedParams("spans: not a string")
    if not value:
        return ()
    words = value.replace("\n", " ").split(" ")
    keys, counts = words[::2], words[1::2]
    if len(keys) > MAX_SPANS:
        raise MalformedParams(f"spans: more than {MAX_SPANS}")
    if len(keys) != len(counts) or not all(words) or not _are_digits(counts):
        raise MalformedParams("spans: a line is not a key and a token count")
    numbers = list(map(int, counts))
    if min(numbers) < 1:
        raise MalformedParams("spans: a token count is not positive")
    return tuple(starmap(Span, zip(map(ChunkKey, keys), numbers, strict=True)))


def _are_digits(words: Sequence[str]) -> bool:
    """Whether each is at most nine ASCII digits."""
    together = "".join(words)
    return together.isascii() and together.isdecimal() and max(map(len, words)) <= 9


def _capture(value: Any) -> Capture | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise MalformedParams("capture: not a mapping")
    match value.get("fact"):
        case None:
            fact = None
        case [str(fact_id), int(revision)]:
            fact = FactRef(FactId(fact_id), revision)
        case _:
            raise MalformedParams("capture.fact: not [id, revision]")
    return Capture(
        key=ChunkKey(_text(value, "key")),
        start=_count(value, "start", minimum=0),
        num_tokens=_count(value, "num_tokens", minimum=1),
        prefix_keys=tuple(map(ChunkKey, _lines(value, "prefix_keys"))),
        fact=fact,
        planned_version=_count(value, "planned_version", minimum=0),
        planned_at=_seconds(value, "planned_at"),
    )


def _forget(value: Any) -> Forget | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise MalformedParams("forget: not a mapping")
    return Forget(
        scope=UserScope(_text(value, "scope")),
        fact_ids=tuple(FactId(fact_id) for fact_id in _texts(value, "fact_ids")),
        version=_count(value, "version", minimum=0),
    )


def _adopt(value: Any) -> Adopt | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise MalformedParams("adopt: not a mapping")
    return Adopt(
        scope=UserScope(_text(value, "scope")),
        sealed_key=_text(value, "sealed_key"),
        wanted=tuple(map(ChunkKey, _lines(value, "wanted"))),
        planned_version=_count(value, "planned_version", minimum=0),
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise MalformedParams(f"{name}: not a non-empty string")
    return value


def _texts(body: Mapping[str, Any], name: str) -> list[str]:
    value = body.get(name)
    if not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise MalformedParams(f"{name}: not a list of strings")
    return list(value)


def _lines(body: Mapping[str, Any], name: str) -> list[str]:
    value = body.get(name)
    if not isinstance(value, str):
        raise MalformedParams(f"{name}: not a string")
    return value.split("\n") if value else []


def _seconds(body: Mapping[str, Any], name: str) -> float:
    value = body.get(name, 0.0)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise MalformedParams(f"{name}: not a number")
    return float(value)


def _count(body: Mapping[str, Any], name: str, *, minimum: int) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise MalformedParams(f"{name}: not an integer of at least {minimum}")
    return value
