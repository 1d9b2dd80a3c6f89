"""The blocking client: what `AsyncInferScale` does, for code without an event loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from inferscale_core.client import records
from inferscale_core.client.async_client import AsyncInferScale
from inferscale_core.client.chat import (
    ChatAnswer,
    ChatEvent,
    ChatMessage,
    Sampling,
    Scoring,
    ServingMode,
)
from inferscale_core.client.chat_stream import ChatStream
from inferscale_core.client.connection import ClientOptions
from inferscale_core.client.loop_thread import LoopThread


class InferScale:
    """See `AsyncInferScale` for what each method means. Safe to share between threads.

    A process that is forked after a client was used cannot use one: its calls raise Unsupported.
    The clients of a process share one thread with an event loop, which ends with the last `close`.
    """

    def __init__(self, target: str, api_key: str, options: ClientOptions | None = None) -> None:
        """target: host:port of control. Connects at the first call."""
        self._thread = LoopThread()
        self._client = AsyncInferScale(target, api_key, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._thread.run(self._client.close())
        self._thread.stop()

    def add_memory(
        self,
        user_id: str,
        text: str,
        *,
        occurred_at: datetime | None = None,
        conversation_id: str | None = None,
        turn_ids: Sequence[str] = (),
        request_id: str | None = None,
    ) -> records.AddedMemory:
        return self._thread.run(
            self._client.add_memory(
                user_id,
                text,
                occurred_at=occurred_at,
                conversation_id=conversation_id,
                turn_ids=turn_ids,
                request_id=request_id,
            )
        )

    def batch_add_memories(
        self,
        user_id: str,
        memories: Sequence[records.NewMemory],
        *,
        request_id: str | None = None,
    ) -> records.BatchAdded:
        return self._thread.run(
            self._client.batch_add_memories(user_id, memories, request_id=request_id)
        )

    def get_memory(self, user_id: str, memory_id: str) -> records.Memory:
        return self._thread.run(self._client.get_memory(user_id, memory_id))

    def list_memories(
        self, user_id: str, *, page_size: int = 0, page_token: str | None = None
    ) -> records.MemoryPage:
        return self._thread.run(
            self._client.list_memories(user_id, page_size=page_size, page_token=page_token)
        )

    def all_memories(self, user_id: str, *, page_size: int = 0) -> Iterator[records.Memory]:
        page_token: str | None = None
        while True:
            page = self.list_memories(user_id, page_size=page_size, page_token=page_token)
            yield from page.memories
            page_token = page.next_page_token
            if page_token is None:
                return

    def update_memory(
        self,
        user_id: str,
        memory_id: str,
        text: str,
        *,
        occurred_at: datetime | None = None,
        expected_revision: int = 0,
        request_id: str | None = None,
    ) -> records.UpdatedMemory:
        return self._thread.run(
            self._client.update_memory(
                user_id,
                memory_id,
                text,
                occurred_at=occurred_at,
                expected_revision=expected_revision,
                request_id=request_id,
            )
        )

    def delete_memory(
        self,
        user_id: str,
        memory_id: str,
        *,
        purge_sources: bool = False,
        request_id: str | None = None,
    ) -> records.DeletedMemory:
        return self._thread.run(
            self._client.delete_memory(
                user_id, memory_id, purge_sources=purge_sources, request_id=request_id
            )
        )

    def get_deletion_receipt(self, user_id: str, receipt_id: str) -> records.DeletionReceipt:
        return self._thread.run(self._client.get_deletion_receipt(user_id, receipt_id))

    def search_memories(
        self, user_id: str, query: str, *, k: int = 0, min_memory_version: int = 0
    ) -> records.SearchResult:
        return self._thread.run(
            self._client.search_memories(user_id, query, k=k, min_memory_version=min_memory_version)
        )

    def append_turns(
        self,
        user_id: str,
        conversation_id: str,
        turns: Sequence[records.Turn],
        *,
        request_id: str | None = None,
    ) -> records.AppendedTurns:
        return self._thread.run(
            self._client.append_turns(user_id, conversation_id, turns, request_id=request_id)
        )

    def delete_turns(
        self,
        user_id: str,
        conversation_id: str,
        turn_ids: Sequence[str] = (),
        *,
        request_id: str | None = None,
    ) -> records.DeletedTurns:
        return self._thread.run(
            self._client.delete_turns(user_id, conversation_id, turn_ids, request_id=request_id)
        )

    def chat(
        self,
        user_id: str,
        messages: str | Sequence[ChatMessage],
        *,
        k: int | None = None,
        sampling: Sampling | None = None,
        model: str | None = None,
        mode: ServingMode = ServingMode.INJECTED,
        min_memory_version: int = 0,
        timed: bool = False,
        text_facts: int | None = None,
        scoring: Scoring | None = None,
    ) -> SyncChatStream:
        async def start() -> ChatStream:
            return self._client.chat(
                user_id,
                messages,
                k=k,
                sampling=sampling,
                model=model,
                mode=mode,
                min_memory_version=min_memory_version,
                timed=timed,
                text_facts=text_facts,
                scoring=scoring,
            )

        return SyncChatStream(self._thread.run(start()), self._thread)


class SyncChatStream:
    """See `ChatStream`. Leaving the `with` block ends the chat and aborts it in the engine."""

    def __init__(self, stream: ChatStream, thread: LoopThread) -> None:
        self._stream = stream
        self._thread = thread

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChatEvent:
        event = self._thread.run(self._next())
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._thread.run(self._stream.aclose())

    def answer(self) -> ChatAnswer:
        return self._thread.run(self._stream.answer())

    async def _next(self) -> ChatEvent | None:
        """None at the end: StopAsyncIteration does not cross threads."""
        return await anext(self._stream, None)
