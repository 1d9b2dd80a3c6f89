"""The chats that are being answered, so that a delete reaches those that were given what is gone.

A chat that was not asked for before is planned from the user's newest facts. One that is on its way
holds the facts of its plan as tokens of its prompt and as KV in the engine, and what it says comes
from them. A delete withdraws it: it leaves the engine, and the delete is not acknowledged before.

An update withdraws nothing. What it replaced stays in Postgres as history, and an answer that began
before it may end as it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from inferscale_core.errors import AnswerWithdrawn
from inferscale_core.ids import FactId, TurnId, UserScope
from inferscale_core.memory.plans import Plan
from inferscale_core.retrieval import UserSnapshot
from inferscale_core.telemetry.logs import get_logger
from services.worker.engine.protocol import EngineOutput

_log = get_logger(__name__)

_T = TypeVar("_T")


class OpenChat:
    """One try at answering. Driven by one task at a time, withdrawn by another of the same loop.

    planning    plan is None, and nothing of the chat is in the engine
    in engine   between the first step of `outputs` or `run` and its end
    withdrawn   from `withdraw` on: whatever is asked of the chat raises AnswerWithdrawn. A task
                that waits for the engine is interrupted; when the chat's reader is busy with the
                last output instead, the engine's stream is closed without it
    """

    def __init__(self, snapshot: UserSnapshot) -> None:
        self.snapshot = snapshot
        self.plan: Plan | None = None
        self._withdrawal: AnswerWithdrawn | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._stream: AsyncGenerator[EngineOutput, None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._outside = asyncio.Event()
        self._outside.set()

    def check(self) -> None:
        """Raises AnswerWithdrawn from the withdrawal on."""
        if self._withdrawal is not None:
            raise self._withdrawal

    async def run(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """The result of work that has requests in the engine until it ends."""
        self._outside.clear()
        try:
            with self._interruptible():
                return await work()
        finally:
            self._outside.set()

    async def outputs(
        self, stream: AsyncGenerator[EngineOutput, None]
    ) -> AsyncGenerator[EngineOutput, None]:
        """What the stream gives; takes it over and closes it."""
        self.check()
        self._outside.clear()
        self._stream = stream
        try:
            while (output := await self._next(stream)) is not None:
                yield output
        finally:
            await asyncio.shield(self._close(stream))

    def was_given(
        self, gone: frozenset[FactId], readers: Callable[[UserSnapshot], set[FactId]]
    ) -> bool:
        """Whether its prompt holds a fact of `gone`, or the chunk of one of the readers that the
        chat's snapshot has. While it is being planned: whether it might."""
        if self.plan is None:
            return not gone.isdisjoint(self.snapshot.facts) or bool(readers(self.snapshot))
        if any(fact.fact.fact_id in gone for fact in self.plan.facts):
            return True
        injected = self.plan.injected_facts
        if not injected:
            return False
        return not readers(self.snapshot).isdisjoint(fact.fact_id for fact in injected)

    def withdraw(self, withdrawal: AnswerWithdrawn) -> None:
        if self._withdrawal is not None:
            return
        self._withdrawal = withdrawal
        if self._waiting is not None:
            self._waiting.cancel()
        elif self._stream is not None:
            self._close(self._stream)

    async def left(self) -> None:
        """Returns when the engine has been told to end what it does for this chat."""
        await self._outside.wait()

    async def _next(self, stream: AsyncGenerator[EngineOutput, None]) -> EngineOutput | None:
        with self._interruptible():
            return await anext(stream, None)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Only what waits for the engine is interrupted: `withdraw` cancels the task, and the
        cancellation ends here unless somebody else has cancelled the task too."""
        self.check()
        task = self._waiting = asyncio.current_task()
        assert task is not None, "chats are answered by tasks"
        try:
            yield
        except asyncio.CancelledError:
            if self._withdrawal is None or task.uncancel() > 0:
                raise
            raise self._withdrawal from None
        finally:
            self._waiting = None

    def _close(self, stream: AsyncGenerator[EngineOutput, None]) -> asyncio.Task[None]:
        """In a task of its own: whoever comes second waits for the same end."""
        if self._closing is None:
            self._closing = asyncio.create_task(_closed(stream))
            self._closing.add_done_callback(lambda _: self._outside.set())
        return self._closing


class OpenChats:
    """Every chat of this worker that has facts and has not ended. Belongs to one event loop."""

    def __init__(self) -> None:
        self._by_scope: dict[UserScope, set[OpenChat]] = {}

    @contextmanager
    def open(self, snapshot: UserSnapshot) -> Iterator[OpenChat]:
        """Enter at once when the snapshot was looked up: a delete that comes later finds it."""
        chat = OpenChat(snapshot)
        chats = self._by_scope.setdefault(snapshot.scope, set())
        chats.add(chat)
        try:
            yield chat
        finally:
            chats.discard(chat)
            if not chats and self._by_scope.get(snapshot.scope) is chats:
                del self._by_scope[snapshot.scope]

    def has_any(self, scope: UserScope) -> bool:
        return scope in self._by_scope

    async def withdraw(
        self, scope: UserScope, gone: frozenset[FactId], turn_ids: frozenset[TurnId]
    ) -> int:
        """Withdraw the user's chats that were given a deleted fact, or a chunk that saw one of
        these facts or turns. Returns how many, when all of them have left the engine."""
        if scope not in self._by_scope or not (gone or turn_ids):
            return 0
        given = await self._given(scope, gone, turn_ids)
        for chat in given:
            chat.withdraw(_withdrawal(gone, turn_ids))
        for chat in given:
            await chat.left()
        if given:
            _log.info("forget.chats_withdrawn", chats=len(given))
        return len(given)

    async def _given(
        self, scope: UserScope, gone: frozenset[FactId], turn_ids: frozenset[TurnId]
    ) -> list[OpenChat]:
        """What a chunk saw is asked of the snapshot that the chat was planned from, in a thread. A
        chat that opens, or moves on to another snapshot, meanwhile has one without what is gone."""
        snapshots = {id(chat.snapshot): chat.snapshot for chat in self._by_scope[scope]}
        found = {
            which: await asyncio.to_thread(snapshot.readers_of, gone, turn_ids)
            for which, snapshot in snapshots.items()
        }

        def readers(snapshot: UserSnapshot) -> set[FactId]:
            return found.get(id(snapshot), set())

        return [chat for chat in self._by_scope.get(scope, ()) if chat.was_given(gone, readers)]


def _withdrawal(gone: frozenset[FactId], turn_ids: frozenset[TurnId]) -> AnswerWithdrawn:
    named = f"memory {min(gone)!r}" if gone else f"turn {min(turn_ids)!r}"
    return AnswerWithdrawn(
        f"{named} was deleted while an answer was given that had seen it; ask again"
    )


async def _closed(stream: AsyncGenerator[EngineOutput, None]) -> None:
    await stream.aclose()
