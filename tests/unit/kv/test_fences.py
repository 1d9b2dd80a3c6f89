from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferscale_core.ids import UserScope
from inferscale_core.kv.fences import Fences

ROBIN, KIM = UserScope("acme/robin"), UserScope("acme/kim")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_version_planned_before_the_newest_forget_is_stopped() -> None:
    fences = Fences()
    fences.raise_to(ROBIN, 5)
    fences.raise_to(ROBIN, 2)
    assert [fences.stop(ROBIN, version, 0.0) for version in (2, 4, 5, 6)] == [1, 1, 0, 0]
    assert not fences.stop(KIM, 0, 0.0)


def test_a_fence_that_made_room_still_stops_what_was_planned_before_it() -> None:
    clock = Clock()
    fences = Fences(max_fences=2, clock=clock)
    for second, scope in enumerate([ROBIN, KIM, "acme/lee"], 10):
        clock.now = float(second)
        fences.raise_to(UserScope(scope), 5)
    assert len(fences) == 2
    assert fences.stop(ROBIN, 4, planned_at=9.0)
    assert fences.stop(UserScope("acme/unknown"), 4, planned_at=9.0), "it may have had one"
    assert not fences.stop(ROBIN, 5, planned_at=10.5)
    assert not fences.stop(KIM, 5, planned_at=9.0), "its fence is still known"


@given(
    events=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.booleans(), st.integers(0, 6)), max_size=40
    ),
    max_fences=st.integers(1, 4),
)
def test_no_late_capture_ever_passes(events: list[tuple[str, bool, int]], max_fences: int) -> None:
    """Users' versions grow with every forget; captures were planned some events ago."""
    clock = Clock()
    fences = Fences(max_fences, clock)
    versions = dict.fromkeys("abcdef", 0)
    history = [(clock.now, dict(versions))]
    for name, is_forget, age in events:
        clock.now += 1.0
        scope = UserScope(f"acme/{name}")
        if is_forget:
            versions[name] += 1
            fences.raise_to(scope, versions[name])
        planned_at, planned = history[max(0, len(history) - 1 - age)]
        if planned[name] < versions[name]:
            assert fences.stop(scope, planned[name], planned_at)
        history.append((clock.now, dict(versions)))
        assert len(fences) <= max_fences
