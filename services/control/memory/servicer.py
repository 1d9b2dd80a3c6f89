"""MemoryService over gRPC."""

from __future__ import annotations

from typing import Any

import grpc.aio

from inferscale_core.rpc.identity import current_tenant
from inferscale_core.rpc.pb.inferscale.v1 import memory_pb2 as pb
from inferscale_core.rpc.pb.inferscale.v1.memory_pb2_grpc import MemoryServiceServicer
from services.control.auth import current_caller
from services.control.memory import convert
from services.control.memory.use_cases import MemoryUseCases
from services.control.validation import check_identifier

_Context = grpc.aio.ServicerContext[Any, Any]


class MemoryServicer(MemoryServiceServicer):
    def __init__(self, memory: MemoryUseCases) -> None:
        self._memory = memory

    async def AddMemory(
        self, request: pb.AddMemoryRequest, context: _Context
    ) -> pb.AddMemoryResponse:
        command = convert.add_memory_from_proto(request)
        added = await self._memory.adds.add(current_caller(), command)
        return pb.AddMemoryResponse(
            memory=convert.memory_to_proto(added.memory),
            memory_version=added.memory_version,
            already_existed=added.already_existed,
        )

    async def BatchAddMemories(
        self, request: pb.BatchAddMemoriesRequest, context: _Context
    ) -> pb.BatchAddMemoriesResponse:
        command = convert.batch_add_from_proto(request)
        added = await self._memory.adds.add_batch(current_caller(), command)
        return pb.BatchAddMemoriesResponse(
            results=[convert.batch_item_to_proto(item) for item in added.items],
            memory_version=added.memory_version,
        )

    async def GetMemory(
        self, request: pb.GetMemoryRequest, context: _Context
    ) -> pb.GetMemoryResponse:
        user_id = convert.user_from_proto(request.user_id)
        fact_id = convert.fact_id_from_proto(request.memory_id)
        memory = await self._memory.reads.get(current_tenant(), user_id, fact_id)
        return pb.GetMemoryResponse(memory=convert.memory_to_proto(memory))

    async def ListMemories(
        self, request: pb.ListMemoriesRequest, context: _Context
    ) -> pb.ListMemoriesResponse:
        command = convert.list_memories_from_proto(request)
        page = await self._memory.reads.page(current_tenant(), command)
        return pb.ListMemoriesResponse(
            memories=[convert.memory_to_proto(memory) for memory in page.memories],
            next_page_token=convert.page_token_of_version(command.user_id, page.next_version),
            memory_version=page.memory_version,
        )

    async def UpdateMemory(
        self, request: pb.UpdateMemoryRequest, context: _Context
    ) -> pb.UpdateMemoryResponse:
        command = convert.update_memory_from_proto(request)
        updated = await self._memory.removals.update(current_caller(), command)
        return pb.UpdateMemoryResponse(
            memory=convert.memory_to_proto(updated.memory),
            memory_version=updated.memory_version,
            dependants_dropped=updated.dependants_dropped,
        )

    async def DeleteMemory(
        self, request: pb.DeleteMemoryRequest, context: _Context
    ) -> pb.DeleteMemoryResponse:
        command = convert.delete_memory_from_proto(request)
        deleted = await self._memory.removals.delete(current_caller(), command)
        return pb.DeleteMemoryResponse(
            receipt=convert.receipt_to_proto(deleted.receipt),
            memory_version=deleted.memory_version,
        )

    async def GetDeletionReceipt(
        self, request: pb.GetDeletionReceiptRequest, context: _Context
    ) -> pb.GetDeletionReceiptResponse:
        user_id = convert.user_from_proto(request.user_id)
        receipt_id = check_identifier("receipt_id", request.receipt_id)
        receipt = await self._memory.reads.receipt(current_tenant(), user_id, receipt_id)
        return pb.GetDeletionReceiptResponse(receipt=convert.receipt_to_proto(receipt))

    async def SearchMemories(
        self, request: pb.SearchMemoriesRequest, context: _Context
    ) -> pb.SearchMemoriesResponse:
        command = convert.search_from_proto(request)
        found = await self._memory.reads.search(current_tenant(), command)
        return pb.SearchMemoriesResponse(
            results=[
                pb.ScoredMemory(memory=convert.memory_to_proto(memory), score=score)
                for memory, score in found.results
            ],
            memory_version=found.memory_version,
        )

    async def AppendTurns(
        self, request: pb.AppendTurnsRequest, context: _Context
    ) -> pb.AppendTurnsResponse:
        command = convert.append_turns_from_proto(request)
        appended = await self._memory.turns.append(current_caller(), command)
        return pb.AppendTurnsResponse(
            turn_ids=appended.turn_ids, memory_version=appended.memory_version
        )

    async def DeleteTurns(
        self, request: pb.DeleteTurnsRequest, context: _Context
    ) -> pb.DeleteTurnsResponse:
        command = convert.delete_turns_from_proto(request)
        removed = await self._memory.removals.delete_turns(current_caller(), command)
        return pb.DeleteTurnsResponse(
            turns_deleted=removed.turns_deleted,
            dependants_dropped=removed.dependants_dropped,
            memory_version=removed.memory_version,
        )
