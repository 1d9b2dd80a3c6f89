"""What a request tells the connector, under `kv_transfer_params` in its `extra_args`.

Plain values, since the engine ships them between processes. A long list is one string, since the
engine also walks and copies the parameters of every request item by item. The scheduler side
parses them once, a list at a time, and a malformed set never raises there: the request is prefilled
as text and a `rejected` event says why.

    handle       unique per request
    span_keys    a line for each span
    span_tokens  their token counts, four bytes each in this machine's order
    capture, forget, adopt  what else is asked for, each a mapping
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span, Spans

PARAMS_KEY = "inferscale"
MAX_SPANS = 1024
_COUNT_BYTES = array("I").itemsize


class Capture(NamedTuple):
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


class RequestParams(NamedTuple):
    """handle: unique per request, carried by events. spans: contiguous from prompt token 0.

    A tuple like `Capture`, since the engine's scheduler makes both for every request.
    """

    handle: str
    spans: Sequence[Span] = ()
    capture: Capture | None = None
    forget: Forget | None = None
    adopt: Adopt | None = None

    def to_wire(self) -> dict[str, Any]:
        """The value of `kv_transfer_params`."""
        spans = Spans.of(self.spans)
        body: dict[str, Any] = {
            "handle": self.handle,
            "span_keys": "\n".join(spans.keys),
            "span_tokens": array("I", spans.counts).tobytes(),
        }
        if self.capture:
            body["capture"] = _capture_to_wire(self.capture, spans)
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
    handle = _text(body, "handle")
    spans = _spans(body)
    return RequestParams(
        handle=handle,
        spans=spans,
        capture=_capture(body.get("capture"), spans),
        forget=_forget(body.get("forget")),
        adopt=_adopt(body.get("adopt")),
    )


def _spans(body: Mapping[str, Any]) -> Spans:
    keys = _lines(body, "span_keys", default="")
    counts = _counts(body.get("span_tokens", b""))
    if len(keys) > MAX_SPANS:
        raise MalformedParams(f"span_keys: more than {MAX_SPANS}")
    if len(keys) != len(counts):
        raise MalformedParams("span_tokens: not one count for each of span_keys")
    return Spans(keys, counts)


def _counts(value: Any) -> list[int]:
    if not isinstance(value, bytes) or len(value) % _COUNT_BYTES:
        raise MalformedParams("span_tokens: not token counts")
    counts = array("I", value).tolist()
    if 0 in counts:
        raise MalformedParams("span_tokens: a token count is not positive")
    return counts


def _capture_to_wire(capture: Capture, spans: Spans) -> dict[str, Any]:
    """Its prefix is not said again where it is just the spans."""
    wire = {
        "key": capture.key,
        "start": capture.start,
        "num_tokens": capture.num_tokens,
        "fact": [capture.fact.fact_id, capture.fact.revision] if capture.fact else None,
        "planned_version": capture.planned_version,
        "planned_at": capture.planned_at,
    }
    if list(capture.prefix_keys) != list(spans.keys):
        wire["prefix_keys"] = "\n".join(capture.prefix_keys)
    return wire


def _capture(value: Any, spans: Spans) -> Capture | None:
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
        prefix_keys=tuple(_lines(value, "prefix_keys") if "prefix_keys" in value else spans.keys),
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
        wanted=tuple(_lines(value, "wanted")),
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


def _lines(body: Mapping[str, Any], name: str, default: str | None = None) -> list[ChunkKey]:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise MalformedParams(f"{name}: not a string")
    if not value:
        return []
    lines = value.split("\n")
    if "" in lines:
        raise MalformedParams(f"{name}: an empty key")
    return cast(list[ChunkKey], lines)


def _seconds(body: Mapping[str, Any], name: str) -> float:
    value = body.get(name, 0.0)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise MalformedParams(f"{name}: not a number")
    try:
        return float(value)
    except OverflowError:
        raise MalformedParams(f"{name}: too large") from None


def _count(body: Mapping[str, Any], name: str, *, minimum: int) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise MalformedParams(f"{name}: not an integer of at least {minimum}")
    return value
