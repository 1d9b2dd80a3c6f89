from collections.abc import AsyncIterator, Awaitable

import grpc.aio

from . import worker_pb2 as pb

class WorkerServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Encode: grpc.aio.UnaryStreamMultiCallable[pb.EncodeRequest, pb.EncodeResponse]
    Generate: grpc.aio.UnaryStreamMultiCallable[pb.GenerateRequest, pb.GenerateResponse]
    Forget: grpc.aio.UnaryUnaryMultiCallable[pb.ForgetRequest, pb.ForgetResponse]
    CacheStatus: grpc.aio.UnaryUnaryMultiCallable[pb.CacheStatusRequest, pb.CacheStatusResponse]
    CountTokens: grpc.aio.UnaryUnaryMultiCallable[pb.CountTokensRequest, pb.CountTokensResponse]

class WorkerServiceServicer:
    def Encode(
        self,
        request: pb.EncodeRequest,
        context: grpc.aio.ServicerContext[pb.EncodeRequest, pb.EncodeResponse],
    ) -> AsyncIterator[pb.EncodeResponse]: ...
    def Generate(
        self,
        request: pb.GenerateRequest,
        context: grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateResponse],
    ) -> AsyncIterator[pb.GenerateResponse]: ...
    def Forget(
        self,
        request: pb.ForgetRequest,
        context: grpc.aio.ServicerContext[pb.ForgetRequest, pb.ForgetResponse],
    ) -> Awaitable[pb.ForgetResponse]: ...
    def CacheStatus(
        self,
        request: pb.CacheStatusRequest,
        context: grpc.aio.ServicerContext[pb.CacheStatusRequest, pb.CacheStatusResponse],
    ) -> Awaitable[pb.CacheStatusResponse]: ...
    def CountTokens(
        self,
        request: pb.CountTokensRequest,
        context: grpc.aio.ServicerContext[pb.CountTokensRequest, pb.CountTokensResponse],
    ) -> Awaitable[pb.CountTokensResponse]: ...

def add_WorkerServiceServicer_to_server(
    servicer: WorkerServiceServicer, server: grpc.aio.Server
) -> None: ...
