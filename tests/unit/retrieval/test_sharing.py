from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from inferscale_core.errors import InvalidInput
from inferscale_core.retrieval.sharing import SharedPasses

MAX_ITEMS = 16


class Held:
    """Gives ten times each number. Every pass waits until `go` is set."""

    def __init__(self) -> None:
        self.passes: list[list[int]] = []
        self.started = threading.Semaphore(0)
        self.go = threading.Event()
        self.num_running = 0
        self.shared: SharedPasses[int, int] = SharedPasses(self._run, MAX_ITEMS)

    def _run(self, items: Sequence[int]) -> list[int | InvalidInput]:
        self.passes.append(list(items))
        self.num_running += 1
        assert self.num_running == 1, "two passes at once"
        self.started.release()
        assert self.go.wait(10)
        self.num_running -= 1
        if 666 in items:
            raise RuntimeError("the device is lost")
        if 777 in items:
            raise InvalidInput("item", "is 777")
        if 888 in items:
            return []
        return [InvalidInput("item", "is negative") if n < 0 else 10 * n for n in items]

    def wait_for(self, count: int) -> None:
        """Until so many callers wait for the running pass."""
        for _ in range(1000):
            if len(self.shared._waiting) == count:
                return
            threading.Event().wait(0.005)
        raise AssertionError(f"{len(self.shared._waiting)} callers wait, not {count}")


def test_an_idle_one_is_asked_at_once() -> None:
    held = Held()
    held.go.set()
    assert [held.shared(7), held.shared(8)] == [70, 80]
    assert held.passes == [[7], [8]]


def test_what_comes_during_a_pass_shares_the_next_one() -> None:
    held = Held()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(held.shared, 0)
        assert held.started.acquire(timeout=10)
        others = [pool.submit(held.shared, n) for n in range(1, 6)]
        held.wait_for(5)
        held.go.set()
        assert first.result(10) == 0
        assert [other.result(10) for other in others] == [10, 20, 30, 40, 50]
    assert sorted(map(len, held.passes)) == [1, 5]


def test_a_pass_takes_no_more_than_it_has_room_for() -> None:
    held = Held()
    num_others = 2 * MAX_ITEMS + 3
    with ThreadPoolExecutor(num_others + 1) as pool:
        calls = [pool.submit(held.shared, 0)]
        assert held.started.acquire(timeout=10)
        calls += [pool.submit(held.shared, n) for n in range(1, num_others + 1)]
        held.wait_for(num_others)
        held.go.set()
        assert [call.result(10) for call in calls] == [10 * n for n in range(num_others + 1)]
    assert sorted(map(len, held.passes)) == [1, 3, MAX_ITEMS, MAX_ITEMS]


@pytest.mark.parametrize(("bad", "reason"), [(-1, "is negative"), (777, "is 777")])
def test_what_is_refused_is_refused_to_its_caller_alone(bad: int, reason: str) -> None:
    """As the item's outcome, or by refusing the pass: then each is asked for by itself."""
    held = Held()
    with ThreadPoolExecutor(4) as pool:
        pool.submit(held.shared, 0)
        assert held.started.acquire(timeout=10)
        good, refused = pool.submit(held.shared, 1), pool.submit(held.shared, bad)
        held.wait_for(2)
        held.go.set()
        assert good.result(10) == 10
        with pytest.raises(InvalidInput, match=reason):
            refused.result(10)
    assert held.shared(5) == 50


@pytest.mark.parametrize(("bad", "reason"), [(666, "lost"), (888, "0 outcomes of 2")])
def test_a_pass_that_fails_fails_all_its_callers_and_no_later_one(bad: int, reason: str) -> None:
    held = Held()
    with ThreadPoolExecutor(4) as pool:
        pool.submit(held.shared, 0)
        assert held.started.acquire(timeout=10)
        calls = [pool.submit(held.shared, n) for n in (1, bad)]
        held.wait_for(2)
        held.go.set()
        for call in calls:
            with pytest.raises(RuntimeError, match=reason):
                call.result(10)
    assert held.shared(5) == 50


@pytest.mark.parametrize("is_to_lead", [False, True])
def test_a_caller_that_is_interrupted_while_it_waits_holds_up_nobody(
    is_to_lead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(held.shared, 0)
        assert held.started.acquire(timeout=10)
        wait = threading.Event.wait

        def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
            if threading.current_thread() is not threading.main_thread() or timeout is not None:
                return wait(event, timeout)
            if is_to_lead:
                held.go.set()
                assert wait(event, 10)
            raise KeyboardInterrupt

        monkeypatch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            held.shared(1)
        monkeypatch.undo()
        held.go.set()
        assert first.result(10) == 0
        assert pool.submit(held.shared, 2).result(10) == 20


def test_what_was_refused_is_not_kept() -> None:
    class Item:
        pass

    def refuse(items: Sequence[Item]) -> list[InvalidInput]:
        return [InvalidInput("item", "is none") for _ in items]

    shared: SharedPasses[Item, int] = SharedPasses(refuse, MAX_ITEMS)
    item = Item()
    kept = weakref.ref(item)
    gc.disable()
    try:
        with pytest.raises(InvalidInput) as refused:
            shared(item)
        del refused, item
        assert kept() is None
    finally:
        gc.enable()
