"""The client for asyncio."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from inferscale_core.client import convert, records
from inferscale_core.client.calls import stream_chat
from inferscale_core.client.chat import ChatMessage, Sampling, Scoring, ServingMode
from inferscale_core.client.chat_stream import ChatStream
from inferscale_core.client.connection import ClientOptions, Connection
from inferscale_core.client.unicode import refuses_lone_surrogates
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, memory_pb2
from inferscale_core.rpc.pb.inferscale.v1.chat_pb2_grpc import ChatServiceStub
from inferscale_core.rpc.pb.inferscale.v1.memory_pb2_grpc import MemoryServiceStub

_MEMORY = "inferscale.v1.MemoryService"
_CHAT = "inferscale.v1.ChatService"


@refuses_lone_surrogates
class AsyncInferScale:
    """Facts and chats of one tenant's users. Used in one event loop; safe to share between tasks.

    Errors are those of `inferscale_core.errors`. Every mutation carries a request id, given or
    drawn, so it is repeated safely while the server is away or restarting; a caller who wants that
    across its own restarts gives the id.
    """

    def __init__(self, target: str, api_key: str, options: ClientOptions | None = None) -> None:
        """target: host:port of control. Connects at the first call."""
        self._connection = Connection(target, api_key, options or ClientOptions())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Calls that are under way are cancelled."""
        await self._connection.close()

    async def add_memory(
        self,
        user_id: str,
        text: str,
        *,
        occurred_at: datetime | None = None,
        conversation_id: str | None = None,
        turn_ids: Sequence[str] = (),
        request_id: str | None = None,
    ) -> records.AddedMemory:
        """Returns once the fact is stored; its encoding follows. The same statement is kept once.

        turn_ids: turns of `conversation_id` that it came from. Raises InvalidInput, NotFound for
        such a turn, QuotaExceeded, or AlreadyDeleted for a request id whose fact is deleted.
        """
        memory = records.NewMemory(text, occurred_at, conversation_id, turn_ids)
        request = memory_pb2.AddMemoryRequest(
            request_id=request_id or new_request_id(),
            user_id=user_id,
            memory=convert.new_memory_to_proto(memory),
        )
        stub = self._memory().AddMemory
        response = await self._connection.call(f"{_MEMORY}/AddMemory", stub, request)
        return records.AddedMemory(
            convert.memory_from_proto(response.memory),
            response.memory_version,
            response.already_existed,
        )

    async def batch_add_memories(
        self,
        user_id: str,
        memories: Sequence[records.NewMemory],
        *,
        request_id: str | None = None,
    ) -> records.BatchAdded:
        """1 to 500 items; each is stored or refused by itself."""
        request = memory_pb2.BatchAddMemoriesRequest(
            request_id=request_id or new_request_id(),
            user_id=user_id,
            memories=[convert.new_memory_to_proto(memory) for memory in memories],
        )
        stub = self._memory().BatchAddMemories
        response = await self._connection.call(f"{_MEMORY}/BatchAddMemories", stub, request)
        items = tuple(convert.batch_item_from_proto(result) for result in response.results)
        return records.BatchAdded(items, response.memory_version)

    async def get_memory(self, user_id: str, memory_id: str) -> records.Memory:
        """With where its chunks are held now. Raises NotFound."""
        request = memory_pb2.GetMemoryRequest(user_id=user_id, memory_id=memory_id)
        stub = self._memory().GetMemory
        response = await self._connection.call(f"{_MEMORY}/GetMemory", stub, request)
        return convert.memory_from_proto(response.memory)

    async def list_memories(
        self, user_id: str, *, page_size: int = 0, page_token: str | None = None
    ) -> records.MemoryPage:
        """page_size: 1 to 500; 0 takes the service's default."""
        request = memory_pb2.ListMemoriesRequest(
            user_id=user_id, page_size=page_size, page_token=page_token or ""
        )
        stub = self._memory().ListMemories
        response = await self._connection.call(f"{_MEMORY}/ListMemories", stub, request)
        return records.MemoryPage(
            tuple(convert.memory_from_proto(memory) for memory in response.memories),
            response.next_page_token or None,
            response.memory_version,
        )

    async def all_memories(
        self, user_id: str, *, page_size: int = 0
    ) -> AsyncIterator[records.Memory]:
        """Every memory of the user, page by page, oldest memory version first."""
        page_token: str | None = None
        while True:
            page = await self.list_memories(user_id, page_size=page_size, page_token=page_token)
            for memory in page.memories:
                yield memory
            page_token = page.next_page_token
            if page_token is None:
                return

    async def update_memory(
        self,
        user_id: str,
        memory_id: str,
        text: str,
        *,
        occurred_at: datetime | None = None,
        expected_revision: int = 0,
        request_id: str | None = None,
    ) -> records.UpdatedMemory:
        """Raises RevisionConflict when the fact is not at `expected_revision`; 0 does not look.

        Text and date replace the fact's own: without `occurred_at` it has no date any more.
        """
        request = memory_pb2.UpdateMemoryRequest(
            request_id=request_id or new_request_id(),
            user_id=user_id,
            memory_id=memory_id,
            expected_revision=expected_revision,
            text=text,
            occurred_at=convert.timestamp(occurred_at),
        )
        stub = self._memory().UpdateMemory
        response = await self._connection.call(f"{_MEMORY}/UpdateMemory", stub, request)
        return records.UpdatedMemory(
            convert.memory_from_proto(response.memory),
            response.memory_version,
            response.dependants_dropped,
        )

    async def delete_memory(
        self,
        user_id: str,
        memory_id: str,
        *,
        purge_sources: bool = False,
        request_id: str | None = None,
    ) -> records.DeletedMemory:
        """From its return on, no answer is given from the fact.

        purge_sources: also delete the turns that the fact came from.
        """
        request = memory_pb2.DeleteMemoryRequest(
            request_id=request_id or new_request_id(),
            user_id=user_id,
            memory_id=memory_id,
            purge_sources=purge_sources,
        )
        stub = self._memory().DeleteMemory
        response = await self._connection.call(f"{_MEMORY}/DeleteMemory", stub, request)
        return records.DeletedMemory(
            convert.receipt_from_proto(response.receipt), response.memory_version
        )

    async def get_deletion_receipt(self, user_id: str, receipt_id: str) -> records.DeletionReceipt:
        """As it is now: holders that were pending may have purged since. Raises NotFound."""
        request = memory_pb2.GetDeletionReceiptRequest(user_id=user_id, receipt_id=receipt_id)
        stub = self._memory().GetDeletionReceipt
        response = await self._connection.call(f"{_MEMORY}/GetDeletionReceipt", stub, request)
        return convert.receipt_from_proto(response.receipt)

    async def search_memories(
        self, user_id: str, query: str, *, k: int = 0, min_memory_version: int = 0
    ) -> records.SearchResult:
        """k: 1 to 200; 0 takes the service's default. min_memory_version: the search sees it."""
        request = memory_pb2.SearchMemoriesRequest(
            user_id=user_id, query=query, k=k, min_memory_version=min_memory_version
        )
        stub = self._memory().SearchMemories
        response = await self._connection.call(f"{_MEMORY}/SearchMemories", stub, request)
        scored = tuple(convert.scored_from_proto(result) for result in response.results)
        return records.SearchResult(scored, response.memory_version)

    async def append_turns(
        self,
        user_id: str,
        conversation_id: str,
        turns: Sequence[records.Turn],
        *,
        request_id: str | None = None,
    ) -> records.AppendedTurns:
        """1 to 500 turns, behind the conversation's last one."""
        request = memory_pb2.AppendTurnsRequest(
            request_id=request_id or new_request_id(),
            user_id=user_id,
            conversation_id=conversation_id,
            turns=[convert.turn_to_proto(turn) for turn in turns],
        )
        stub = self._memory().AppendTurns
        response = await self._connection.call(f"{_MEMORY}/AppendTurns", stub, request)
        return records.AppendedTurns(tuple(response.turn_ids), response.memory_version)

    async def delete_turns(
        self,
        user_id: str,
        conversation_id: str,
        turn_ids: Sequence[str] = (),
        *,
        request_id: str | None = None,
    ) -> records.DeletedTurns:
        """Without `turn_ids`: every turn of the conversation."""
        request = memory_pb2.DeleteTurnsRequest(
            request_id=request_id or new_request_id(),
            user_id=user_id,
            conversation_id=conversation_id,
            turn_ids=turn_ids,
        )
        stub = self._memory().DeleteTurns
        response = await self._connection.call(f"{_MEMORY}/DeleteTurns", stub, request)
        return records.DeletedTurns(
            response.turns_deleted, response.dependants_dropped, response.memory_version
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
    ) -> ChatStream:
        """Start at the first event asked for. A string is one message of the user.

        k: facts to bring in, 0 to 200; None takes the service's default. timed: nothing comes from
        the engine's own prefix cache, so that times can be compared. text_facts: the best so many
        facts are prefilled as text, 0 to k; None takes the recipe's number.
        scoring: also say how likely an answer is.
        """
        if isinstance(messages, str):
            messages = [ChatMessage("user", messages)]
        request = chat_pb2.ChatRequest(
            user_id=user_id,
            messages=[convert.message_to_proto(message) for message in messages],
            k=k,
            sampling=convert.sampling_to_proto(sampling or Sampling()),
            model=model or "",
            mode=convert.mode_to_proto(mode),
            min_memory_version=min_memory_version,
            timed=timed,
            text_facts=text_facts,
            scoring=convert.scoring_to_proto(scoring),
        )
        options = self._connection.options
        responses = stream_chat(
            f"{_CHAT}/Chat",
            self._connection.stub(ChatServiceStub).Chat,
            request,
            deadline_s=options.chat_deadline_s,
            policy=options.retries,
        )
        return ChatStream(responses)

    def _memory(self) -> MemoryServiceStub:
        return self._connection.stub(MemoryServiceStub)


def new_request_id() -> str:
    return uuid.uuid4().hex
