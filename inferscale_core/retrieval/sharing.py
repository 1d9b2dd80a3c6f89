"""What is asked for at once shares a pass over the device."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from inferscale_core.errors import InvalidInput

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Call(Generic[Item, Result]):
    """Waiting, then done with a result or an error. ready: it is done, or is to lead."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.ready = threading.Event()
        self.is_done = False
        self._result: Result | None = None
        self._error: BaseException | None = None

    def finish(self, outcome: Result | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._error = outcome
        else:
            self._result = outcome
        self.is_done = True
        self.ready.set()

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # Done without an error.


class SharedPasses(Generic[Item, Result]):
    """Calls that wait for nothing while no other runs.

    The first caller runs its item at once. Those who come meanwhile wait for that pass to end, and
    then one of them runs the items of all. Safe to call from several threads; has none of its own.
    """

    def __init__(
        self, run: Callable[[Sequence[Item]], Sequence[Result | InvalidInput]], max_items: int
    ) -> None:
        """run: an outcome for each of up to `max_items` items; never called twice at once. What it
        raises, all callers of the pass get."""
        self._run = run
        self._max_items = max_items
        self._lock = threading.Lock()
        self._waiting: deque[_Call[Item, Result]] = deque()
        self._is_running = False

    def __call__(self, item: Item) -> Result:
        """Raises what `run` gave for the item, or raised."""
        call: _Call[Item, Result] = _Call(item)
        with self._lock:
            self._waiting.append(call)
            leads, self._is_running = not self._is_running, True
        if not leads:
            call.ready.wait()
        if not call.is_done:
            self._lead(call)
        return call.result()

    def _lead(self, own: _Call[Item, Result]) -> None:
        """Run passes until the caller's own item is among them; then the next in line leads."""
        try:
            while not own.is_done:
                self._pass()
        finally:
            with self._lock:
                following = self._waiting[0] if self._waiting else None
                self._is_running = following is not None
            if following is not None:
                following.ready.set()

    def _pass(self) -> None:
        """The items that came first, as many as a pass takes."""
        with self._lock:
            count = min(len(self._waiting), self._max_items)
            calls = [self._waiting.popleft() for _ in range(count)]
        outcomes: Sequence[Result | BaseException]
        try:
            outcomes = self._run([call.item for call in calls])
        except BaseException as exc:
            outcomes = [exc] * len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            call.finish(outcome)
