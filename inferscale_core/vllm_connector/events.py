"""What the scheduler side tells the worker service, in order, over a local socket.

One message is one JSON object with `seq` (from 1, without gaps) and `kind`:

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
                                                             outside_window | arena_full | aborted
    forgotten        handle, num_chunks, num_dependants,     all is zeroed and removed but for what
                     num_tokens, num_by_tier (copies),       is pending
                     num_pending (copies)
    zeroed           key, tier                               a pending copy: zeros, or removed, now
    adopted          handle, num_chunks                      a user's disk records were compared;
                                                             follows their `published`
    rejected         handle, reason                          malformed; prefilled as text

No message holds text of a fact.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    kind: EventKind
    fields: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> bytes:
        return json.dumps({"seq": self.seq, "kind": self.kind, **self.fields}).encode()


def event_from_wire(message: bytes) -> Event:
    body = json.loads(message)
    return Event(body.pop("seq"), EventKind(body.pop("kind")), body)
