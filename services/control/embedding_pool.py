"""The embedder behind threads of its own, so that slow embedding holds up nothing else.

A call waits here without a database connection and without blocking the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from inferscale_core.embedding import Embedder, EmbedderIdentity
from inferscale_core.errors import InvalidInput, Unavailable
from inferscale_core.store import Embedding
from inferscale_core.telemetry import names
from inferscale_core.telemetry.metrics import QueueMetrics
from inferscale_core.telemetry.tracing import span

MAX_WAITING = 1024
"""Calls in the pool at once. More would wait longer than their deadlines: at 5 ms for a fact on two
CPU cores this is 5 s of work."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TooLong:
    """A text that was not embedded, since the embedder would have ignored its end."""

    num_tokens: int


Embedded: TypeAlias = Embedding | TooLong | InvalidInput


class EmbeddingPool:
    """Owns its threads. Belongs to one event loop; `close` waits for running calls."""

    def __init__(self, embedder: Embedder, *, threads: int, max_waiting: int = MAX_WAITING) -> None:
        self._embedder = embedder
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="embed")
        self._max_waiting = max_waiting
        self._since_by_call: dict[object, float] = {}
        QueueMetrics("embedding", depth=lambda: self.depth, oldest_age_s=self.oldest_age_s)

    @property
    def identity(self) -> EmbedderIdentity:
        return self._embedder.identity

    @property
    def max_tokens(self) -> int:
        """The embedder's window, its special tokens included."""
        return self._embedder.max_tokens

    @property
    def depth(self) -> int:
        """Calls that wait or are being embedded."""
        return len(self._since_by_call)

    def oldest_age_s(self) -> float:
        """Of those calls, 0 without any. May be called from another thread."""
        now = time.monotonic()
        return max((now - since for since in list(self._since_by_call.values())), default=0.0)

    async def embed(self, texts: Sequence[str], *, max_tokens: int) -> list[Embedded]:
        """A unit vector for each text of at most `max_tokens` tokens of the embedder.

        InvalidInput stands where the model gives a vector that cannot be compared. Raises
        Unavailable when too many calls wait.
        """
        with span(names.EMBED):
            return await self._run(lambda: self._embed_short(texts, max_tokens))

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _embed_short(self, texts: Sequence[str], max_tokens: int) -> list[Embedded]:
        counts = [self._embedder.count_tokens(text) for text in texts]
        short = [text for text, count in zip(texts, counts, strict=True) if count <= max_tokens]
        vectors = iter(self._embed_all(short))
        return [next(vectors) if count <= max_tokens else TooLong(count) for count in counts]

    def _embed_all(self, texts: Sequence[str]) -> list[Embedding | InvalidInput]:
        """One by one where the texts together are refused, so that a bad one stands alone."""
        if not texts:
            return []
        try:
            return list(self._embedder.embed(texts))
        except InvalidInput as problem:
            if len(texts) == 1:
                return [problem]
        return [self._embed_all([text])[0] for text in texts]

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self.depth >= self._max_waiting:
            raise Unavailable(f"{self.depth} calls wait for the embedder; try again")
        call = object()
        self._since_by_call[call] = time.monotonic()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            del self._since_by_call[call]
