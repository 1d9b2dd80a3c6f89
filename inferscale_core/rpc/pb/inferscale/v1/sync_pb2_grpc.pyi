from collections.abc import AsyncIterator, Awaitable

import grpc.aio

from . import sync_pb2 as pb

class SyncServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    ListChanges: grpc.aio.UnaryStreamMultiCallable[pb.ListChangesRequest, pb.ListChangesResponse]
    JoinWorker: grpc.aio.UnaryUnaryMultiCallable[pb.JoinWorkerRequest, pb.JoinWorkerResponse]
    RemoveWorker: grpc.aio.UnaryUnaryMultiCallable[pb.RemoveWorkerRequest, pb.RemoveWorkerResponse]

class SyncServiceServicer:
    def ListChanges(
        self,
        request: pb.ListChangesRequest,
        context: grpc.aio.ServicerContext[pb.ListChangesRequest, pb.ListChangesResponse],
    ) -> AsyncIterator[pb.ListChangesResponse]: ...
    def JoinWorker(
        self,
        request: pb.JoinWorkerRequest,
        context: grpc.aio.ServicerContext[pb.JoinWorkerRequest, pb.JoinWorkerResponse],
    ) -> Awaitable[pb.JoinWorkerResponse]: ...
    def RemoveWorker(
        self,
        request: pb.RemoveWorkerRequest,
        context: grpc.aio.ServicerContext[pb.RemoveWorkerRequest, pb.RemoveWorkerResponse],
    ) -> Awaitable[pb.RemoveWorkerResponse]: ...

def add_SyncServiceServicer_to_server(
    servicer: SyncServiceServicer, server: grpc.aio.Server
) -> None: ...
