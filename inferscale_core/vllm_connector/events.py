"""What the scheduler side tells the worker service, in order, over a local socket.

One message is a JSON list of events, those of one call of the engine. Each is an object with `seq`
(from 1, without gaps) and `kind`:

    published        key, num_tokens, fact, revision, tier   a chunk can be injected from now on
    moved            key, tier                               where its fastest copy is now
    dropped          key, reason (evicted | forgotten),      it cannot any more; pending: the tiers
                     pending                                 where its rows wait for a reader or
                                                             writer, a `zeroed` of each follows
    usage            num_pages, num_pinned: by tier          held; of these being read or written
    served           handle, native_tokens, injected_tokens  decided when it was scheduled
    composed         handle, inject_ms                       the injection of a request ran
    captured         handle, key                             follows its `published`
    capture_refused  handle, key, reason                     missing_prefix | fenced | duplicate |
                                                             another_user | outside_window |
                                                             arena_full | aborted
    forgotten        handle, num_chunks, num_dependants,     all is zeroed and removed but for what
                     num_tokens, num_by_tier (copies),       is pending
                     num_pending (copies)
    zeroed           key, tier                               a pending copy: zeros, or removed, now
    adopted          handle, num_chunks                      a user's disk records were compared;
                                                             follows their `published`
    rejected         handle, reason                          malformed; prefilled as text

No event holds text of a fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec


class EventKind(StrEnum):
    PUBLISHED = "published"
    MOVED = "moved"
    DROPPED = "dropped"
    USAGE = "usage"
    SERVED = "served"
    COMPOSED = "composed"
    CAPTURED = "captured"
    CAPTURE_REFUSED = "capture_refused"
    FORGOTTEN = "forgotten"
    ZEROED = "zeroed"
    ADOPTED = "adopted"
    REJECTED = "rejected"


class Event(msgspec.Struct, frozen=True, gc=False):
    seq: int
    kind: EventKind
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


def body_of(event: Event) -> dict[str, Any]:
    return {"seq": event.seq, "kind": event.kind, **event.fields}


def event_of(body: dict[str, Any]) -> Event:
    """Takes the body over. Raises KeyError or TypeError for what is no event."""
    return Event(body.pop("seq"), _KINDS[body.pop("kind")], body)


def bodies_to_wire(bodies: Sequence[Mapping[str, Any]]) -> bytes:
    """Never raises because of a request's own text. Numbers are finite."""
    try:
        return msgspec.json.encode(bodies)
    except UnicodeEncodeError:  # Half of a surrogate pair, in a handle or a key.
        return json.dumps(bodies, skipkeys=True).encode()


def bodies_from_wire(message: bytes) -> list[dict[str, Any]]:
    """Raises ValueError for what is no list of objects."""
    try:
        return _decoder.decode(message)
    except msgspec.DecodeError as problem:
        raise ValueError(str(problem)) from None


_KINDS: dict[str, EventKind] = {kind.value: kind for kind in EventKind}

_decoder = msgspec.json.Decoder(list[dict[str, Any]])
