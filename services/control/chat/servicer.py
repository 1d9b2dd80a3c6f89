"""ChatService over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc.aio

from inferscale_core.rpc.identity import current_tenant
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2
from inferscale_core.rpc.pb.inferscale.v1.chat_pb2_grpc import ChatServiceServicer
from services.control.chat.convert import chat_from_proto
from services.control.chat.use_cases import ChatUseCases

_Context = grpc.aio.ServicerContext[chat_pb2.ChatRequest, chat_pb2.ChatResponse]


class ChatServicer(ChatServiceServicer):
    def __init__(self, chats: ChatUseCases) -> None:
        self._chats = chats

    async def Chat(
        self, request: chat_pb2.ChatRequest, context: _Context
    ) -> AsyncIterator[chat_pb2.ChatResponse]:
        chat = chat_from_proto(request)
        events = self._chats.chat(current_tenant(), chat, limit_s=context.time_remaining())
        async with aclosing(events):
            async for event in events:
                yield event
