from __future__ import annotations

from array import array

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferscale_core.ids import ChunkKey, FactId, UserScope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.spans import Span
from inferscale_core.vllm_connector.events import (
    Event,
    EventKind,
    bodies_from_wire,
    bodies_to_wire,
    body_of,
    event_of,
)
from inferscale_core.vllm_connector.params import (
    Adopt,
    Capture,
    Forget,
    MalformedParams,
    RequestParams,
    params_from_wire,
)

PARAMS = RequestParams(
    handle="h",
    spans=(Span(ChunkKey("t/u/a"), 3), Span(ChunkKey("t/u/b"), 5)),
    capture=Capture(ChunkKey("t/u/c"), 8, 4, (ChunkKey("t/u/b"),), FactRef(FactId("f"), 2), 7),
    forget=Forget(UserScope("t/u"), (FactId("g"),), 9),
    adopt=Adopt(UserScope("t/u"), "3.00ff", (ChunkKey("t/u/a"), ChunkKey("t/u/b")), 7),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
event_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.lists(st.text())
    | st.dictionaries(st.text(), st.integers())
)
field_names = st.sampled_from(["handle", "span_keys", "span_tokens", "capture", "forget", "adopt"])


def counts(*numbers: int) -> bytes:
    return array("I", numbers).tobytes()


def test_params_survive_the_wire() -> None:
    wire = msgspec.msgpack.encode(PARAMS.to_wire())  # As the engine's own parameters go.
    assert params_from_wire(msgspec.msgpack.decode(wire)) == PARAMS


def test_a_capture_behind_just_its_spans_does_not_name_them_again() -> None:
    keys = tuple(span.key for span in PARAMS.spans)
    params = RequestParams(
        "h", PARAMS.spans, Capture(ChunkKey("t/u/c"), 8, 4, keys, FactRef(FactId("f"), 2), 7)
    )
    wire = params.to_wire()
    assert str(wire).count("t/u/a") == 1
    assert params_from_wire(wire) == params


@pytest.mark.parametrize("prefix_keys", [(), (ChunkKey("t/u/z"),)])
def test_a_capture_may_have_seen_other_chunks_than_its_spans(
    prefix_keys: tuple[ChunkKey, ...],
) -> None:
    capture = Capture(ChunkKey("t/u/c"), 8, 4, prefix_keys, FactRef(FactId("f"), 2), 7)
    params = RequestParams("h", PARAMS.spans, capture)
    assert params_from_wire(params.to_wire()) == params


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        ("a", counts()),
        ("", counts(3)),
        ("a\nb", counts(3)),
        ("a", counts(0)),
        ("a", counts(3)[:3]),
        ("a", counts(3) + b"x"),
        ("a\n", counts(3, 3)),
        ("a", "3"),
        ("a", [3]),
        (["a"], counts(3)),
        ("a", 3),
    ],
)
def test_spans_whose_counts_are_no_counts_are_refused_by_name(keys: object, tokens: object) -> None:
    body = {"handle": "h", "span_keys": keys, "span_tokens": tokens}
    with pytest.raises(MalformedParams, match=r"^span_"):
        params_from_wire({"inferscale": body})


def test_a_time_beyond_all_numbers_is_refused_by_name() -> None:
    wire = PARAMS.to_wire()
    wire["inferscale"]["capture"]["planned_at"] = 10**400
    with pytest.raises(MalformedParams, match=r"^planned_at"):
        params_from_wire(wire)


def test_a_header_capture_has_no_fact() -> None:
    capture = Capture(ChunkKey("shared/header/x"), 0, 4, (), None, 0)
    params = RequestParams("h", capture=capture)
    assert params_from_wire(params.to_wire()) == params


def test_a_user_who_should_have_no_chunk_is_compared_all_the_same() -> None:
    params = RequestParams("h", adopt=Adopt(UserScope("t/u"), "3.00ff", (), 0))
    assert params_from_wire(params.to_wire()) == params


def test_a_sealed_key_is_not_shown_where_params_are_printed() -> None:
    assert "00ff" not in repr(PARAMS)


@pytest.mark.parametrize("wire", [None, {}, {"other": 1}, "text", 7])
def test_a_request_without_ours_is_nobodys_business(wire: object) -> None:
    assert params_from_wire(wire) is None  # type: ignore[arg-type]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(field_names, json_values))
def test_whatever_is_sent_is_parsed_or_refused_and_never_fails_otherwise(body: dict) -> None:
    try:
        params = params_from_wire({"inferscale": body})
    except MalformedParams:
        return
    assert params is not None
    assert params_from_wire(params.to_wire()) == params


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(EventKind)), st.dictionaries(st.sampled_from("abc"), event_values))
def test_events_survive_the_wire(kind: EventKind, fields: dict) -> None:
    event = Event(3, kind, fields)
    wire = bodies_to_wire([body_of(event)])
    assert list(map(event_of, bodies_from_wire(wire))) == [event]


def test_half_a_character_in_a_handle_does_not_stop_the_scheduler() -> None:
    lost = Event(1, EventKind.REJECTED, {"handle": "\ud800", "reason": "malformed"})
    assert bodies_to_wire([body_of(lost)])
