"""Asks questions over gRPC and times them from the client's side."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

from examples.answers import Asked, Pair
from inferscale_core.client import Delta, Done, InferScale, Sampling, Served, ServingMode

TIMES_TRIED = 3


class NotComparable(Exception):
    """A pair could not be measured so that it may be compared. The message says why."""


class Onlooker:
    """Sees how a pair is asked. This one shows nothing of it.

    `served`, `text` and `answered` are told of the injected half alone.
    """

    def waiting(self, mode: ServingMode) -> AbstractContextManager[object]:
        """Entered when the question is sent, left with the first token or an error."""
        return nullcontext()

    def served(self, served: Served) -> None:
        """What came with the first token."""

    def text(self, piece: str) -> None:
        """A piece of the answer, as it comes."""

    def answered(self, asked: Asked) -> None: ...

    def not_counted(self, problem: str) -> None:
        """The pair may not be compared and is asked again."""


UNSEEN = Onlooker()


def ask(
    client: InferScale,
    user_id: str,
    question: str,
    *,
    k: int,
    mode: ServingMode,
    max_tokens: int,
    onlooker: Onlooker = UNSEEN,
) -> Asked:
    """One timed chat: its cache salt is used once, so the engine's own prefix cache is no help."""
    started = time.monotonic()
    events = client.chat(
        user_id,
        question,
        k=k,
        mode=mode,
        timed=True,
        sampling=Sampling(temperature=0.0, max_tokens=max_tokens),
    )
    with onlooker.waiting(mode):
        served = next(event for event in events if isinstance(event, Served))
        ttft_s = time.monotonic() - started
    onlooker.served(served)
    pieces = []
    done: Done | None = None
    for event in events:
        match event:
            case Delta(text):
                pieces.append(text)
                onlooker.text(text)
            case Done():
                done = event
    assert done is not None, "a chat ends with Done, or with an error"
    return Asked(
        answer="".join(pieces),
        facts=served.facts,
        usage=done.usage,
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
    onlooker: Onlooker = UNSEEN,
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
            onlooker=onlooker,
        )
        onlooker.answered(injected)
        with onlooker.waiting(ServingMode.TEXT):
            text = ask(client, user_id, question, k=k, mode=ServingMode.TEXT, max_tokens=1)
        pair = Pair(k, injected, text)
        problem = pair.why_not_counted()
        if problem is None:
            return pair
        onlooker.not_counted(problem)
    raise NotComparable(f"no pair at k = {k} counted in {TIMES_TRIED} tries: {problem}")
