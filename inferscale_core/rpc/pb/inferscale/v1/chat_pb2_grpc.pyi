from collections.abc import AsyncIterator, Awaitable

import grpc.aio

from . import chat_pb2 as pb

class ChatServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Chat: grpc.aio.UnaryStreamMultiCallable[pb.ChatRequest, pb.ChatResponse]

class ChatServiceServicer:
    def Chat(
        self,
        request: pb.ChatRequest,
        context: grpc.aio.ServicerContext[pb.ChatRequest, pb.ChatResponse],
    ) -> AsyncIterator[pb.ChatResponse]: ...

def add_ChatServiceServicer_to_server(
    servicer: ChatServiceServicer, server: grpc.aio.Server
) -> None: ...
