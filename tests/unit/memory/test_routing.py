from __future__ import annotations

from collections import Counter

import pytest

from inferscale_core.ids import TenantId, UserId, WorkerId
from inferscale_core.memory.routing import owner_of

ACME = TenantId("acme")
USERS = [UserId(f"user-{n}") for n in range(2_000)]


def workers(count: int) -> list[WorkerId]:
    return [WorkerId(f"worker-{n}") for n in range(count)]


def owners(count: int) -> dict[UserId, WorkerId | None]:
    return {user: owner_of(ACME, user, workers(count)) for user in USERS}


def test_without_workers_nobody_owns_a_user() -> None:
    assert owner_of(ACME, USERS[0], []) is None


def test_the_owner_does_not_depend_on_the_order_of_the_workers() -> None:
    for user in USERS[:100]:
        assert owner_of(ACME, user, workers(5)) == owner_of(ACME, user, reversed(workers(5)))


def test_a_new_worker_takes_users_and_moves_no_user_between_the_others() -> None:
    before, after = owners(4), owners(5)
    moved = {user for user in USERS if before[user] != after[user]}
    assert {after[user] for user in moved} == {WorkerId("worker-4")}
    assert 0.1 < len(moved) / len(USERS) < 0.3


@pytest.mark.parametrize("count", [2, 3, 8])
def test_users_are_spread_evenly(count: int) -> None:
    sizes = Counter(owners(count).values())
    assert set(sizes) == set(workers(count))
    assert min(sizes.values()) > 0.75 * len(USERS) / count


def test_ids_that_join_to_the_same_string_are_told_apart() -> None:
    pairs = [(TenantId("a"), UserId(f"b{n}")) for n in range(64)]
    shifted = [(TenantId("ab"), UserId(str(n))) for n in range(64)]
    assert [owner_of(*pair, workers(8)) for pair in pairs] != [
        owner_of(*pair, workers(8)) for pair in shifted
    ]
