from __future__ import annotations

from typing import Any

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
    MAX_SPANS,
    Adopt,
    Capture,
    Forget,
    MalformedParams,
    RequestParams,
    handle_of,
    params_from_wire,
)

PARAMS = RequestParams(
    handle="h",
    spans=(Span(ChunkKey("t/u/a"), 3), Span(ChunkKey("t/u/b"), 5)),
    capture=Capture(ChunkKey("t/u/c"), 8, 4, (ChunkKey("t/u/b"),), FactRef(FactId("f"), 2), 7),
    forget=Forget(UserScope("t/u"), (FactId("g"),), 9),
    adopt=Adopt(UserScope("t/u"), "3.00ff", (ChunkKey("t/u/a"), ChunkKey("t/u/b")), 7),
)

packed_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary(),
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


def packed(body: object) -> dict[str, bytes]:
    return {"inferscale": msgspec.msgpack.encode(body)}


def unpacked(params: RequestParams) -> dict[str, Any]:
    body = msgspec.msgpack.decode(params.to_wire()["inferscale"])
    assert isinstance(body, dict)
    return body


def test_params_survive_the_wire() -> None:
    wire = msgspec.msgpack.encode(PARAMS.to_wire())  # As the engine's own parameters go.
    assert params_from_wire(msgspec.msgpack.decode(wire)) == PARAMS


@pytest.mark.parametrize("num_unseen", [0, 1, 2])
def test_a_capture_behind_the_last_of_its_spans_does_not_name_them_again(num_unseen: int) -> None:
    keys = tuple(span.key for span in PARAMS.spans)[num_unseen:]
    params = RequestParams(
        "h", PARAMS.spans, Capture(ChunkKey("t/u/c"), 8, 4, keys, FactRef(FactId("f"), 2), 7)
    )
    wire = params.to_wire()
    assert wire["inferscale"].count(b"t/u/b") == 1
    assert params_from_wire(wire) == params


@pytest.mark.parametrize(
    "names", [("z",), ("a",), ("b", "a"), ("a", "b", "c"), ("z", "b"), ("b",) * 3]
)
def test_a_capture_may_have_seen_other_chunks_than_its_spans(names: tuple[str, ...]) -> None:
    prefix_keys = tuple(ChunkKey(f"t/u/{name}") for name in names)
    capture = Capture(ChunkKey("t/u/c"), 8, 4, prefix_keys, FactRef(FactId("f"), 2), 7)
    params = RequestParams("h", PARAMS.spans, capture)
    assert params_from_wire(params.to_wire()) == params


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        (["a"], []),
        ([], [3]),
        (["a", "b"], [3]),
        (["a"], [0]),
        (["a"], [-1]),
        (["a", ""], [3, 3]),
        (["a"], ["3"]),
        (["a"], [3.0]),
        (["a"], [True]),
        (["a"], b"\x03\x00\x00\x00"),
        ([1], [3]),
        ("a", [3]),
        (["a"], 3),
        ({"a": 3}, [3]),
        (["a"] * (MAX_SPANS + 1), [3] * (MAX_SPANS + 1)),
    ],
)
def test_spans_whose_counts_are_no_counts_are_refused_by_name(keys: object, tokens: object) -> None:
    with pytest.raises(MalformedParams, match=r"^span_"):
        params_from_wire(packed({"handle": "h", "span_keys": keys, "span_tokens": tokens}))


def test_so_many_spans_are_taken() -> None:
    spans = tuple(Span(ChunkKey(f"t/u/{number}"), 1) for number in range(MAX_SPANS))
    assert params_from_wire(RequestParams("h", spans).to_wire()) == RequestParams("h", spans)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("handle", "", "handle"),
        ("handle", 7, "handle"),
        ("handle", None, "handle"),
        ("capture", "x", "capture"),
        ("capture", {"key": "k", "start": 0}, "capture: .*`num_tokens`"),
        ("capture.key", "", "capture.key"),
        ("capture.start", -1, "capture.start"),
        ("capture.num_tokens", 0, "capture.num_tokens"),
        ("capture.num_tokens", True, "capture.num_tokens"),
        ("capture.seen", 3, "capture.seen"),
        ("capture.seen", -1, "capture.seen"),
        ("capture.seen", "t/u/b", "capture.seen"),
        ("capture.seen", ["t/u/b", ""], "capture.seen"),
        ("capture.fact", ["f", 2], "capture.fact"),
        ("capture.fact", {"fact_id": "f", "revision": "2"}, "capture.fact.revision"),
        ("capture.planned_version", 1.5, "capture.planned_version"),
        ("capture.planned_at", "now", "capture.planned_at"),
        ("capture.planned_at", True, "capture.planned_at"),
        ("capture.planned_at", float("nan"), "capture.planned_at"),
        ("forget", [], "forget"),
        ("forget", {"fact_ids": [], "version": 1}, "forget: .*`scope`"),
        ("forget.scope", "", "forget.scope"),
        ("forget.fact_ids", "g", "forget.fact_ids"),
        ("forget.fact_ids", ["g", 7], "forget.fact_ids"),
        ("forget.version", -1, "forget.version"),
        ("adopt", 7, "adopt"),
        ("adopt.sealed_key", "", "adopt.sealed_key"),
        ("adopt.wanted", "t/u/a", "adopt.wanted"),
        ("adopt.wanted", ["t/u/a", ""], "adopt.wanted"),
        ("adopt.planned_version", None, "adopt.planned_version"),
    ],
)
def test_what_is_wrong_is_refused_by_name_and_the_request_is_known_all_the_same(
    field: str, value: object, named: str
) -> None:
    body = unpacked(PARAMS)
    outer, _, inner = field.partition(".")
    if inner:
        body[outer][inner] = value
    else:
        body[outer] = value
    with pytest.raises(MalformedParams, match=f"^{named}"):
        params_from_wire(packed(body))
    assert handle_of(packed(body)) == ("" if outer == "handle" else "h")


def test_a_request_without_a_handle_is_refused_by_name() -> None:
    body = unpacked(PARAMS)
    del body["handle"]
    with pytest.raises(MalformedParams, match=r"`handle`"):
        params_from_wire(packed(body))


@pytest.mark.parametrize("planned_at", [7, 2**64 - 1, 1e300, float("inf")])
def test_a_time_may_be_any_number(planned_at: float) -> None:
    body = unpacked(PARAMS)
    body["capture"]["planned_at"] = planned_at
    params = params_from_wire(packed(body))
    assert params is not None
    assert params.capture is not None
    assert params.capture.planned_at == float(planned_at)


@pytest.mark.parametrize("body", [None, 7, "text", [], {"handle": "h"}, b"", b"\xc1"])
def test_what_is_no_message_is_refused(body: object) -> None:
    with pytest.raises(MalformedParams, match=r"."):
        params_from_wire({"inferscale": body})
    assert handle_of({"inferscale": body}) == ""


def test_half_a_character_is_refused_and_the_request_is_known_all_the_same() -> None:
    """The engine cannot send one, nor can `to_wire` write one."""
    wire = msgspec.msgpack.encode({"handle": "h", "span_keys": ["abc"], "span_tokens": [3]})
    half = {"inferscale": wire.replace(b"abc", "\ud800".encode("utf-8", "surrogatepass"))}
    with pytest.raises(MalformedParams, match="UTF-8"):
        params_from_wire(half)
    assert handle_of(half) == "h"
    with pytest.raises(UnicodeEncodeError):
        RequestParams("\ud800").to_wire()
    with pytest.raises(UnicodeEncodeError):
        msgspec.msgpack.encode("\ud800")


def test_what_is_nested_without_end_is_refused() -> None:
    before = b"".join(map(msgspec.msgpack.encode, ("handle", "h", "more")))
    body = b"\x82" + before + b"\x91" * 10**5
    with pytest.raises(MalformedParams, match="recursion"):
        params_from_wire({"inferscale": body})
    assert handle_of({"inferscale": body}) == ""


@pytest.mark.parametrize("said", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
def test_what_is_said_to_be_long_and_is_not_there_is_refused(said: bytes) -> None:
    forget = b"".join(map(msgspec.msgpack.encode, ("handle", "h", "forget")))
    names = b"\x81" + msgspec.msgpack.encode("fact_ids")
    with pytest.raises(MalformedParams, match=r"."):
        params_from_wire({"inferscale": b"\x82" + forget + names + said})


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


def is_parsed_or_refused(wire: dict[str, bytes]) -> None:
    handle_of(wire)
    try:
        params = params_from_wire(wire)
    except MalformedParams:
        return
    assert params is not None
    assert params_from_wire(params.to_wire()) == params


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(field_names, packed_values))
def test_whatever_is_sent_is_parsed_or_refused_and_never_fails_otherwise(body: dict) -> None:
    is_parsed_or_refused(packed(unpacked(PARAMS) | body))
    is_parsed_or_refused(packed(body))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_becomes_of_a_message_is_parsed_or_refused(data: st.DataObject) -> None:
    wire = bytearray(PARAMS.to_wire()["inferscale"])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(wire)))
        stop = data.draw(st.integers(start, min(start + 6, len(wire))))
        wire[start:stop] = data.draw(st.binary(max_size=6))
    is_parsed_or_refused({"inferscale": bytes(wire)})


def test_a_view_with_gaps_is_refused() -> None:
    wire = {"inferscale": memoryview(bytearray(40))[::2]}
    with pytest.raises(MalformedParams):
        params_from_wire(wire)
    assert handle_of(wire) == ""


def test_a_message_that_was_cut_off_is_refused() -> None:
    wire = PARAMS.to_wire()["inferscale"]
    for length in range(len(wire)):
        with pytest.raises(MalformedParams):
            params_from_wire({"inferscale": wire[:length]})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(EventKind)), st.dictionaries(st.sampled_from("abc"), event_values))
def test_events_survive_the_wire(kind: EventKind, fields: dict) -> None:
    event = Event(3, kind, fields)
    wire = bodies_to_wire([body_of(event)])
    assert list(map(event_of, bodies_from_wire(wire))) == [event]


def test_half_a_character_in_a_handle_does_not_stop_the_scheduler() -> None:
    lost = Event(1, EventKind.REJECTED, {"handle": "\ud800", "reason": "malformed"})
    assert bodies_to_wire([body_of(lost)])
