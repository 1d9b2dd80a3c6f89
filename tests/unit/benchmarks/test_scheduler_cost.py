from __future__ import annotations

import pytest

from benchmarks.host_table import PARTS
from benchmarks.scheduler_cost import Parts, Requests


@pytest.mark.parametrize("num_users", [1, 2])
@pytest.mark.parametrize("captures", [False, True])
def test_every_part_of_a_step_is_timed_and_nothing_is_left_of_its_requests(
    num_users: int, captures: bool
) -> None:
    requests, parts = Requests(num_users, 3, captures=captures), Parts()
    requests.step_without(Parts())
    for name in ("first", "second"):
        requests.step(name, parts)
    assert all(parts.median_us(part, num_users) > 0 for part in PARTS)
    side = requests.side
    assert (side.num_requests, side.num_steps_in_flight, side.directory.num_pinned) == (0, 0, 0)
    assert side.directory.num_published == num_users * (3 + 2 * captures)
