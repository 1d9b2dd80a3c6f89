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
            try:
                raise self._error
            finally:
                del self._error  # Its traceback holds this call, and so what it asked for.
        return self._result  # type: ignore[return-value]  # Done without an error.


class SharedPasses(Generic[Item, Result]):
    """Calls that wait for nothing while no other runs.

    The first caller runs its item at once. Those who come meanwhile wait for that pass to end, and
    then the first of them runs the items of all. Safe to call from several threads; has none of its
    own.
    """

    def __init__(
        self, run: Callable[[Sequence[Item]], Sequence[Result | InvalidInput]], max_items: int
    ) -> None:
        """run: an outcome for each of up to `max_items` items; never called twice at once. When it
        raises InvalidInput it is asked for each item by itself; what else it raises, all callers of
        the pass get."""
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
            self._wait(call)
        if not call.is_done:
            try:
                self._pass()  # The caller's own item is the first in line.
            finally:
                self._hand_on()
        return call.result()

    def _wait(self, call: _Call[Item, Result]) -> None:
        try:
            call.ready.wait()
        except BaseException:  # As on Ctrl-C: nobody waits for it any more, and others still do.
            with self._lock:
                if call in self._waiting:
                    self._waiting.remove(call)
                was_to_lead = call.ready.is_set() and not call.is_done
            if was_to_lead:
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        """Let the next in line lead."""
        with self._lock:
            self._is_running = bool(self._waiting)
            if self._waiting:
                self._waiting[0].ready.set()

    def _pass(self) -> None:
        """The items that came first, as many as a pass takes."""
        with self._lock:
            count = min(len(self._waiting), self._max_items)
            calls = [self._waiting.popleft() for _ in range(count)]
        outcomes = self._outcomes([call.item for call in calls])
        for call in calls:
            call.finish(outcomes.popleft())

    def _outcomes(self, items: Sequence[Item]) -> deque[Result | BaseException]:
        try:
            outcomes = self._run(items)
            if len(outcomes) != len(items):
                raise RuntimeError(f"{len(outcomes)} outcomes of {len(items)} items")
            return deque(outcomes)
        except InvalidInput as refusal:
            if len(items) == 1:
                return deque([refusal])
            return deque(outcome for item in items for outcome in self._outcomes([item]))
        except BaseException as exc:
            return deque([exc] * len(items))
