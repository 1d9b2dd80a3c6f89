from __future__ import annotations

import pytest

from benchmarks.host_table import PARTS
from benchmarks.scheduler_cost import Parts, Requests


@pytest.mark.parametrize("captures", [False, True])
def test_every_part_of_a_request_is_timed_and_nothing_is_left_of_it(captures: bool) -> None:
    requests, parts = Requests(3, captures=captures), Parts()
    requests.one_without(Parts())
    for name in ("first", "second"):
        requests.one(name, parts)
    assert [len(parts.samples(part)) for part in PARTS] == [2] * len(PARTS)
    side = requests.side
    assert (side.num_requests, side.num_steps_in_flight, side.directory.num_pinned) == (0, 0, 0)
    assert side.directory.num_published == 3 + 2 * captures
