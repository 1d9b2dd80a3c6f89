"""Asks questions over gRPC and times them from the client's side."""

from __future__ import annotations

import time
from collections.abc import Callable

from examples.answers import Asked, Pair
from inferscale_core.client import Delta, Done, InferScale, Sampling, Served, ServingMode

TIMES_TRIED = 3


class NotComparable(Exception):
    """A pair could not be measured so that it may be compared. The message says why."""


OnText = Callable[[str], None]
OnServed = Callable[[Served], None]


def ask(
    client: InferScale,
    user_id: str,
    question: str,
    *,
    k: int,
    mode: ServingMode,
    max_tokens: int,
    on_served: OnServed | None = None,
    on_text: OnText | None = None,
) -> Asked:
    """One timed chat: its cache salt is used once, so the engine's own prefix cache is no help.

    `on_text` gets each piece of the answer as it comes, `on_served` what came with the first token.
    """
    started = time.monotonic()
    served: Served | None = None
    done = False
    ttft_s = 0.0
    pieces = []
    for event in client.chat(
        user_id,
        question,
        k=k,
        mode=mode,
        timed=True,
        sampling=Sampling(temperature=0.0, max_tokens=max_tokens),
    ):
        match event:
            case Served():
                ttft_s = time.monotonic() - started
                served = event
                if on_served:
                    on_served(event)
            case Delta(text):
                pieces.append(text)
                if on_text:
                    on_text(text)
            case Done():
                done = True
    assert served is not None, "a chat that ends has been served"
    assert done, "a chat ends with Done, or with an error"
    return Asked(
        answer="".join(pieces),
        facts=served.facts,
        usage=served.usage,
        timings=served.timings,
        ttft_s=ttft_s,
        total_s=time.monotonic() - started,
    )


def ask_pair(
    client: InferScale,
    user_id: str,
    question: str,
    *,
    k: int,
    max_tokens: int = 1,
    on_served: OnServed | None = None,
    on_text: OnText | None = None,
    on_repeat: Callable[[str], None] | None = None,
) -> Pair:
    """The question injected and then as text, repeated until the two may be compared.

    Raises NotComparable when they still may not after three tries.
    """
    for _ in range(TIMES_TRIED):
        injected = ask(
            client,
            user_id,
            question,
            k=k,
            mode=ServingMode.INJECTED,
            max_tokens=max_tokens,
            on_served=on_served,
            on_text=on_text,
        )
        text = ask(client, user_id, question, k=k, mode=ServingMode.TEXT, max_tokens=1)
        pair = Pair(k, injected, text)
        problem = pair.why_not_counted()
        if problem is None:
            return pair
        if on_repeat:
            on_repeat(problem)
    raise NotComparable(f"no pair at k = {k} counted in {TIMES_TRIED} tries: {problem}")
