"""The events of one chat as they arrive."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from inferscale_core.client.chat import (
    ChatAnswer,
    ChatEvent,
    Delta,
    Done,
    Retrieved,
    Scored,
    Served,
)
from inferscale_core.client.convert import event_from_proto
from inferscale_core.errors import EngineError
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2


class ChatStream:
    """Iterate over it once, or read it all with `answer`.

    `async with` or `aclose` ends the chat early and aborts it in the engine; so does cancelling the
    task that iterates. When the server goes away before the first delta the chat starts again, and
    `Retrieved` may come twice: the last one counts.
    """

    def __init__(self, responses: AsyncGenerator[chat_pb2.ChatResponse, None]) -> None:
        self._responses = responses

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatEvent:
        while True:
            event = event_from_proto(await anext(self._responses))
            if event is not None:
                return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the chat; does nothing when it has ended."""
        await self._responses.aclose()

    async def answer(self) -> ChatAnswer:
        """Read to the end. Raises EngineError when the stream ends without `Done`."""
        pieces: list[str] = []
        retrieved: Retrieved | None = None
        served: Served | None = None
        scored: Scored | None = None
        done: Done | None = None
        async with self:
            async for event in self:
                match event:
                    case Retrieved():
                        retrieved = event
                    case Scored():
                        scored = event
                    case Served():
                        served = event
                    case Delta(text):
                        pieces.append(text)
                    case Done():
                        done = event
        if done is None:
            raise EngineError("the chat ended without saying how")
        return ChatAnswer("".join(pieces), retrieved, served, done, scored)
