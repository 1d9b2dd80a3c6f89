from collections.abc import AsyncIterator, Awaitable

import grpc.aio

from . import memory_pb2 as pb

class MemoryServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    AddMemory: grpc.aio.UnaryUnaryMultiCallable[pb.AddMemoryRequest, pb.AddMemoryResponse]
    BatchAddMemories: grpc.aio.UnaryUnaryMultiCallable[pb.BatchAddMemoriesRequest, pb.BatchAddMemoriesResponse]
    GetMemory: grpc.aio.UnaryUnaryMultiCallable[pb.GetMemoryRequest, pb.GetMemoryResponse]
    ListMemories: grpc.aio.UnaryUnaryMultiCallable[pb.ListMemoriesRequest, pb.ListMemoriesResponse]
    UpdateMemory: grpc.aio.UnaryUnaryMultiCallable[pb.UpdateMemoryRequest, pb.UpdateMemoryResponse]
    DeleteMemory: grpc.aio.UnaryUnaryMultiCallable[pb.DeleteMemoryRequest, pb.DeleteMemoryResponse]
    GetDeletionReceipt: grpc.aio.UnaryUnaryMultiCallable[pb.GetDeletionReceiptRequest, pb.GetDeletionReceiptResponse]
    SearchMemories: grpc.aio.UnaryUnaryMultiCallable[pb.SearchMemoriesRequest, pb.SearchMemoriesResponse]
    AppendTurns: grpc.aio.UnaryUnaryMultiCallable[pb.AppendTurnsRequest, pb.AppendTurnsResponse]
    DeleteTurns: grpc.aio.UnaryUnaryMultiCallable[pb.DeleteTurnsRequest, pb.DeleteTurnsResponse]

class MemoryServiceServicer:
    def AddMemory(
        self,
        request: pb.AddMemoryRequest,
        context: grpc.aio.ServicerContext[pb.AddMemoryRequest, pb.AddMemoryResponse],
    ) -> Awaitable[pb.AddMemoryResponse]: ...
    def BatchAddMemories(
        self,
        request: pb.BatchAddMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.BatchAddMemoriesRequest, pb.BatchAddMemoriesResponse],
    ) -> Awaitable[pb.BatchAddMemoriesResponse]: ...
    def GetMemory(
        self,
        request: pb.GetMemoryRequest,
        context: grpc.aio.ServicerContext[pb.GetMemoryRequest, pb.GetMemoryResponse],
    ) -> Awaitable[pb.GetMemoryResponse]: ...
    def ListMemories(
        self,
        request: pb.ListMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.ListMemoriesRequest, pb.ListMemoriesResponse],
    ) -> Awaitable[pb.ListMemoriesResponse]: ...
    def UpdateMemory(
        self,
        request: pb.UpdateMemoryRequest,
        context: grpc.aio.ServicerContext[pb.UpdateMemoryRequest, pb.UpdateMemoryResponse],
    ) -> Awaitable[pb.UpdateMemoryResponse]: ...
    def DeleteMemory(
        self,
        request: pb.DeleteMemoryRequest,
        context: grpc.aio.ServicerContext[pb.DeleteMemoryRequest, pb.DeleteMemoryResponse],
    ) -> Awaitable[pb.DeleteMemoryResponse]: ...
    def GetDeletionReceipt(
        self,
        request: pb.GetDeletionReceiptRequest,
        context: grpc.aio.ServicerContext[pb.GetDeletionReceiptRequest, pb.GetDeletionReceiptResponse],
    ) -> Awaitable[pb.GetDeletionReceiptResponse]: ...
    def SearchMemories(
        self,
        request: pb.SearchMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.SearchMemoriesRequest, pb.SearchMemoriesResponse],
    ) -> Awaitable[pb.SearchMemoriesResponse]: ...
    def AppendTurns(
        self,
        request: pb.AppendTurnsRequest,
        context: grpc.aio.ServicerContext[pb.AppendTurnsRequest, pb.AppendTurnsResponse],
    ) -> Awaitable[pb.AppendTurnsResponse]: ...
    def DeleteTurns(
        self,
        request: pb.DeleteTurnsRequest,
        context: grpc.aio.ServicerContext[pb.DeleteTurnsRequest, pb.DeleteTurnsResponse],
    ) -> Awaitable[pb.DeleteTurnsResponse]: ...

def add_MemoryServiceServicer_to_server(
    servicer: MemoryServiceServicer, server: grpc.aio.Server
) -> None: ...
