"""Texts that come at once share a forward pass."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from inferscale_core.embedding.embedder import Embedder, EmbedderIdentity, Vectors
from inferscale_core.errors import InvalidInput

MAX_TEXTS = 16
"""Texts of one pass: as many as the largest recorded shape takes."""


class _Call:
    """Waiting, then done with vectors or an error."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.vectors: Vectors | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.vectors is not None or self.error is not None

    def result(self) -> Vectors:
        if self.error is not None:
            raise self.error
        assert self.vectors is not None, "the call is done"
        return self.vectors


class BatchingEmbedder:
    """An embedder whose callers wait for nothing while it is idle.

    The first caller runs its texts at once. Those who come meanwhile wait for that pass to end, and
    then one of them runs the texts of all. Safe to call from several threads; has none of its own.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._is_running = False

    @property
    def identity(self) -> EmbedderIdentity:
        return self._embedder.identity

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def count_tokens(self, text: str) -> int:
        return self._embedder.count_tokens(text)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """As `Embedder.embed`: a text that is refused is refused to its caller alone."""
        call = _Call(texts)
        with self._changed:
            self._waiting.append(call)
            while self._is_running and not call.is_done:
                self._changed.wait()
            if call.is_done:
                return call.result()
            self._is_running = True
        self._lead(call)
        return call.result()

    def _lead(self, own: _Call) -> None:
        """Run passes until the caller's own texts are among them."""
        try:
            while not own.is_done:
                with self._changed:
                    calls = self._next_calls()
                self._run(calls)
        finally:
            with self._changed:
                self._is_running = False
                self._changed.notify_all()

    def _next_calls(self) -> list[_Call]:
        """Those that came first, whole, up to MAX_TEXTS texts; at least one call."""
        calls = [self._waiting.popleft()]
        room = MAX_TEXTS - len(calls[0].texts)
        while self._waiting and len(self._waiting[0].texts) <= room:
            calls.append(self._waiting.popleft())
            room -= len(calls[-1].texts)
        return calls

    def _run(self, calls: list[_Call]) -> None:
        try:
            vectors = self._embedder.embed([text for call in calls for text in call.texts])
        except InvalidInput as refusal:
            if len(calls) == 1:
                calls[0].error = refusal
                return
            for call in calls:
                self._run([call])
        except BaseException as exc:
            for call in calls:
                call.error = exc
        else:
            begin = 0
            for call in calls:
                call.vectors = vectors[begin : begin + len(call.texts)]
                begin += len(call.texts)
