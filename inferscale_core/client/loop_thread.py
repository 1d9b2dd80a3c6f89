"""The event loop, in a thread of its own, in which blocking clients run the asyncio one.

A process has one at most: gRPC's asyncio layer wakes every loop that uses it for the events of any,
and those that find nothing left to read print tracebacks.
Source: grpcio 1.76, _cython/_cygrpc/aio/completion_queue.pyx.pxi (PollerCompletionQueue).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from inferscale_core.errors import Unsupported

_Result = TypeVar("_Result")


class _SharedLoop:
    """Runs while somebody holds it: the first `take` starts it, the last `give_back` ends it."""

    def __init__(self) -> None:
        self.was_used = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._num_holders = 0
        self._lock = threading.Lock()

    def take(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="inferscale-client", daemon=True
                )
                self._thread.start()
            self.was_used = True
            self._num_holders += 1
            return self._loop

    def give_back(self) -> None:
        with self._lock:
            self._num_holders -= 1
            if self._loop is not None and not self._num_holders:
                asyncio.run_coroutine_threadsafe(_wind_down(), self._loop).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
                self._loop = None


_shared = _SharedLoop()
_parent_used_grpc = False


def _forget_after_fork() -> None:
    """A child has its parent's objects and none of its threads. gRPC's are gone as well, and calls
    would wait for them for ever."""
    global _shared, _parent_used_grpc
    _parent_used_grpc = _parent_used_grpc or _shared.was_used
    _shared = _SharedLoop()


os.register_at_fork(after_in_child=_forget_after_fork)


class LoopThread:
    """One client's hold on the shared loop, taken by the first `run` and given back by `stop`.

    `run` may be called from any thread but the loop's.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Block until it is done. Interrupting the wait (KeyboardInterrupt) cancels it.

        Raises Unsupported in a process forked from one that has used a client.
        """
        if _parent_used_grpc:
            coroutine.close()
            raise Unsupported(
                "gRPC does not survive a fork: use no client before it,"
                " or start the process by spawn"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self._taken())
        self._running.add(future)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            self._running.discard(future)

    def stop(self) -> None:
        """Cancel what this client still runs, streams that nobody closed included."""
        with self._lock:
            if self._loop is not None:
                for future in tuple(self._running):
                    future.cancel()
                self._loop = None
                _shared.give_back()

    def _taken(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = _shared.take()
            return self._loop


async def _wind_down() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
