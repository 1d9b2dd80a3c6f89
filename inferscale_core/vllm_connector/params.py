"""What a request tells the connector, under `kv_transfer_params` in its `extra_args`.

One value of bytes: the engine walks, copies and ships the parameters of every request item by item.
They are MessagePack, and what a field may hold stands in its type, so the scheduler side reads and
checks them in one call of a library in C. A malformed set never raises there: the request is
prefilled as text and a `rejected` event says why.

    handle       unique per request
    span_keys    of each span
    span_tokens  their token counts
    capture, forget, adopt  what else is asked for
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span, Spans

PARAMS_KEY = "inferscale"
MAX_SPANS = 1024

_Key = Annotated[ChunkKey, Meta(min_length=1)]
_Text = Annotated[str, Meta(min_length=1)]
_Positive = Annotated[int, Meta(ge=1)]
_Natural = Annotated[int, Meta(ge=0)]


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

    scope: Annotated[UserScope, Meta(min_length=1)]
    fact_ids: tuple[FactId, ...]
    version: _Natural


@dataclass(frozen=True, slots=True)
class Adopt:
    """Compare the scope's records on disk with the chunks that its user should have.

    From the answer on the disk tier has, of this scope, those of `wanted` that every rank could
    open, all sealed under the key; the others are gone from the disk and from the directory's disk
    tier. sealed_key: `StoreSecret.seal` of the user's newest `DiskKey`; only ranks can open it.
    planned_version: refused like a capture when something was forgotten after it.
    """

    scope: Annotated[UserScope, Meta(min_length=1)]
    sealed_key: _Text = field(repr=False)
    wanted: tuple[_Key, ...]
    planned_version: _Natural


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
        """The value of `kv_transfer_params`. Raises UnicodeEncodeError for half a character."""
        spans = Spans.of(self.spans)
        body = _Body(
            handle=self.handle,
            span_keys=tuple(spans.keys),
            span_tokens=tuple(spans.counts),
            capture=_capture_to_wire(self.capture, spans) if self.capture else None,
            forget=self.forget,
            adopt=self.adopt,
        )
        return {PARAMS_KEY: _encoder.encode(body)}


class MalformedParams(ValueError):
    """Says which part is wrong. Caught by the scheduler side; never leaves it."""


def params_from_wire(wire: object) -> RequestParams | None:
    """wire: what stands under `kv_transfer_params`, whatever it is. None when the request carries
    none of ours. Raises MalformedParams."""
    if not isinstance(wire, dict) or PARAMS_KEY not in wire:
        return None
    try:
        body = _bodies.decode(wire[PARAMS_KEY])
    except _UNREADABLE as problem:
        raise MalformedParams(_reason(problem)) from None
    keys, counts = body.span_keys, body.span_tokens
    if len(keys) != len(counts):
        raise MalformedParams("span_tokens: not one count for each of span_keys")
    capture = body.capture
    return RequestParams(
        body.handle,
        Spans(keys, counts),
        None if capture is None else _capture(capture, keys),
        body.forget,
        body.adopt,
    )


def handle_of(wire: Any) -> str:
    """The handle of a request whose params are malformed; empty when it cannot be read either."""
    try:
        return _handles.decode(wire[PARAMS_KEY]).handle
    except (*_UNREADABLE, KeyError):
        return ""


class _Capture(msgspec.Struct, gc=False, omit_defaults=True):
    """seen: `prefix_keys`, or with how many of the spans left out they are just the others: the
    header, which is no part of them, stands before them."""

    key: _Key
    start: _Natural
    num_tokens: _Positive
    seen: _Natural | tuple[_Key, ...]
    planned_version: _Natural
    planned_at: Annotated[float, Meta(ge=0)] = 0.0
    fact: FactRef | None = None


class _Body(msgspec.Struct, gc=False, omit_defaults=True):
    handle: _Text
    span_keys: Annotated[tuple[_Key, ...], Meta(max_length=MAX_SPANS)] = ()
    span_tokens: tuple[_Positive, ...] = ()
    capture: _Capture | None = None
    forget: Forget | None = None
    adopt: Adopt | None = None


class _Handle(msgspec.Struct):
    """Just that; what else there is, is passed over unread."""

    handle: str


_encoder = msgspec.msgpack.Encoder()
_bodies = msgspec.msgpack.Decoder(_Body)
_handles = msgspec.msgpack.Decoder(_Handle)

_UNREADABLE = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    BufferError,
    RecursionError,
    MemoryError,
)
"""All that a decoder raises: of other types, no bytes, half characters, and what is nested or said
to be long without end."""


def _reason(problem: BaseException) -> str:
    """Begins with the field, where one can be named."""
    text, _, path = str(problem).partition(" - at `$.")
    return f"{path.rstrip('`')}: {text}" if path else text


def _capture_to_wire(capture: Capture, spans: Spans) -> _Capture:
    num_unseen = len(spans) - len(capture.prefix_keys)
    is_rest = num_unseen >= 0 and tuple(spans.keys[num_unseen:]) == capture.prefix_keys
    return _Capture(
        key=capture.key,
        start=capture.start,
        num_tokens=capture.num_tokens,
        seen=num_unseen if is_rest else capture.prefix_keys,
        planned_version=capture.planned_version,
        planned_at=capture.planned_at,
        fact=capture.fact,
    )


def _capture(wire: _Capture, span_keys: tuple[ChunkKey, ...]) -> Capture:
    seen = wire.seen
    if isinstance(seen, int):
        if seen > len(span_keys):
            raise MalformedParams("capture.seen: more than there are spans")
        seen = span_keys[seen:]
    return Capture(
        wire.key,
        wire.start,
        wire.num_tokens,
        seen,
        wire.fact,
        wire.planned_version,
        wire.planned_at,
    )
