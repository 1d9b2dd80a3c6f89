from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest
import torch

from inferscale_core.errors import InvalidInput, Unavailable
from inferscale_core.ids import FactId, TenantId, TurnId, UserId
from inferscale_core.memory.recipes import Recipe
from inferscale_core.settings import WorkerSettings
from services.worker.users import UserAt
from tests.worker.conftest import RECIPE, FakeWorker, MakeWorker
from tests.worker.control import WordEmbedder
from tests.worker.test_encode import TEXTS, fill


async def test_changes_arrive_page_by_page_as_one(worker: FakeWorker) -> None:
    fill(worker)
    assert len(worker.control.pages(worker.control.user(), 0)) == 2
    snapshot = await worker.parts.users.at_least(worker.control.at())
    assert [fact.text for fact in snapshot.facts.values()] == TEXTS


async def test_a_user_without_facts_is_asked_for_once(worker: FakeWorker) -> None:
    worker.control.add("f0", "A fact")
    worker.control.remove("f0")
    for _ in range(3):
        await worker.parts.users.at_least(worker.control.at())
    assert worker.control.num_lists == 1


async def test_of_a_user_whom_control_did_not_know_nothing_is_held(worker: FakeWorker) -> None:
    """Control notes no holder of such a user, and a fact may be added before the worker asks."""
    unknown = worker.control.at()
    worker.control.add("f0", "The alarm code is 4471")
    snapshot = await worker.parts.users.at_least(unknown)
    assert (snapshot.facts, worker.control.num_lists) == ({}, 0)
    assert len((await worker.parts.users.at_least(worker.control.at())).facts) == 1


async def test_only_what_is_newer_is_fetched(worker: FakeWorker) -> None:
    fill(worker)
    await worker.parts.users.at_least(worker.control.at())
    held = worker.control.user().version
    worker.control.add("f8", "A new one")
    asked: list[int] = []
    pages = worker.control.pages

    def recorded(user: object, after_version: int) -> object:
        asked.append(after_version)
        return pages(user, after_version)  # type: ignore[arg-type]

    worker.control.pages = recorded  # type: ignore[method-assign,assignment]
    snapshot = await worker.parts.users.at_least(worker.control.at())
    assert asked == [held]
    assert len(snapshot.facts) == 9


async def test_a_version_that_control_does_not_have_is_not_served(worker: FakeWorker) -> None:
    fill(worker)
    ahead = UserAt(TenantId("acme"), UserId("robin"), 1000)
    with pytest.raises(Unavailable, match=r"version 8, below the 1000"):
        await worker.parts.users.at_least(ahead)


async def test_the_user_not_used_for_longest_goes_first(make_worker: MakeWorker) -> None:
    worker = make_worker(RECIPE, WorkerSettings(max_users_cached=2))
    for user_id in ("a", "b", "a", "c"):
        worker.control.add(f"{user_id}1", "A fact", user_id)
        await worker.parts.users.at_least(worker.control.at(user_id))
    users = worker.parts.users
    assert users.peek(worker.control.at("a").scope) is not None
    assert users.peek(worker.control.at("b").scope) is None
    assert users.peek(worker.control.at("c").scope) is not None


async def test_a_user_being_fetched_is_not_evicted(make_worker: MakeWorker) -> None:
    worker = make_worker(RECIPE, WorkerSettings(max_users_cached=1))
    users = [f"user{n}" for n in range(8)]
    for user_id in users:
        worker.control.add(f"{user_id}1", "A fact", user_id)
    snapshots = await asyncio.gather(
        *(worker.parts.users.at_least(worker.control.at(u)) for u in users)
    )
    assert [len(snapshot.facts) for snapshot in snapshots] == [1] * 8


async def test_who_waited_while_a_copy_was_dropped_does_not_get_it(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = worker.parts.users
    worker.control.add("f0", "A fact")
    before = worker.control.at()
    await users.at_least(before)
    worker.control.remove("f0")
    is_asked, ends = asyncio.Event(), asyncio.Event()

    async def fail(*_: object) -> NoReturn:
        is_asked.set()
        await ends.wait()
        raise Unavailable("control is away")

    async def forget() -> None:
        with pytest.raises(Unavailable):
            await users.at_least(worker.control.at())
        users.drop(before.scope)
        monkeypatch.undo()

    monkeypatch.setattr(worker.control, "list_changes", fail)
    forgetting = asyncio.create_task(forget())
    await is_asked.wait()
    waiting = asyncio.create_task(users.at_least(before))
    await asyncio.sleep(0)
    ends.set()
    await forgetting
    assert (await waiting).facts == {}


async def test_equal_user_ids_of_two_tenants_are_two_users(worker: FakeWorker) -> None:
    worker.control.user("robin", "acme").version = 1
    acme, other = worker.control.at("robin", "acme"), worker.control.at("robin", "other")
    assert acme.scope != other.scope
    worker.control.add("f0", "A fact of acme")
    await worker.parts.users.at_least(worker.control.at())
    snapshot = await worker.parts.users.at_least(other)
    assert snapshot.facts == {}


async def test_a_bad_vector_leaves_what_is_held_as_it_was(worker: FakeWorker) -> None:
    worker.control.add("f0", "A fact")
    await worker.parts.users.at_least(worker.control.at())
    worker.control.add("f1", "Another")
    worker.control.user().facts["f1"].embedding = bytes(32 * 4)
    with pytest.raises(InvalidInput, match="embedding"):
        await worker.parts.users.at_least(worker.control.at())
    held = worker.parts.users.peek(worker.control.at().scope)
    assert held is not None
    assert list(held.facts) == ["f0"]


@pytest.mark.parametrize(("num_turns", "num_kept"), [(0, 0), (2, 3)])
async def test_turns_are_kept_only_for_recipes_that_look_at_them(
    make_worker: MakeWorker, num_turns: int, num_kept: int
) -> None:
    worker = make_worker(Recipe("w", with_header=False, num_turns=num_turns))
    for number in range(3):
        worker.control.add_turn(f"t{number}", number, f"turn number {number}")
    worker.control.add("f0", "A fact", turn_ids=("t2",))
    snapshot = await worker.parts.users.at_least(worker.control.at())
    known = [
        TurnId(f"t{number}")
        for number in range(3)
        if snapshot.turns.conversations_of([TurnId(f"t{number}")])
    ]
    assert len(known) == num_kept


async def test_a_fact_updated_between_two_pages_is_held_once(worker: FakeWorker) -> None:
    control, user = worker.control, worker.control.user()
    control.add("f0", "Robin has a dog")
    earlier = control.pages(user, 0)
    control.add("f0", "Robin plays chess")
    later = control.pages(user, 0)
    earlier[-1].last = False
    control.pages = lambda *_: [*earlier, *later]  # type: ignore[method-assign]
    snapshot = await worker.parts.users.at_least(control.at())
    question = torch.from_numpy(WordEmbedder().embed(["Robin has a dog"])[0])
    [(fact_id, score)] = snapshot.vectors.nearest(question, 5)
    assert snapshot.facts[fact_id].text == "Robin plays chess"
    assert score < 0.9
    assert snapshot.vectors.ids == ("f0",)


@pytest.mark.parametrize("is_one_page", [False, True])
async def test_a_turn_that_took_the_id_of_a_deleted_one_is_kept(
    make_worker: MakeWorker, is_one_page: bool
) -> None:
    worker = make_worker(Recipe("w", with_header=False, num_turns=2))
    control, user = worker.control, worker.control.user()
    control.add_turn("t0", 0, "the alarm code is 4471")
    control.remove("t0")
    removal = control.pages(user, 0)
    control.add_turn("t0", 1, "the alarm was serviced")
    control.add_turn("t1", 2, "good")
    control.add("f0", "A fact", turn_ids=("t1",))
    if not is_one_page:
        added = control.pages(user, 0)
        added[-1].ClearField("removed_turn_ids")
        control.pages = lambda *_: [*removal, *added]  # type: ignore[method-assign]
    snapshot = await worker.parts.users.at_least(control.at())
    assert snapshot.specs[FactId("f0")].turn_ids == ("t0",)


async def test_a_turn_deleted_between_two_pages_is_gone(make_worker: MakeWorker) -> None:
    worker = make_worker(Recipe("w", with_header=False, num_turns=2))
    control, user = worker.control, worker.control.user()
    control.add_turn("t0", 0, "the alarm code is 4471")
    control.add_turn("t1", 1, "good")
    control.add("f0", "A fact", turn_ids=("t1",))
    earlier = control.pages(user, 0)
    control.remove("t0")
    later = control.pages(user, user.version - 1)
    control.pages = lambda *_: [*earlier, *later]  # type: ignore[method-assign]
    snapshot = await worker.parts.users.at_least(control.at())
    assert snapshot.specs[FactId("f0")].turn_ids == ()
