"""The judge's client against a real HTTP server."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from inferscale_core.errors import InferScaleError, InvalidInput, Unauthenticated, Unavailable
from services.evaluation.judge.endpoint import open_endpoint
from services.evaluation.judge.wording import CONTROL, messages
from tests.evaluation.judge_server import (
    RIGHT,
    JudgeServer,
    Reply,
    completion,
    dead_url,
)

KEY = "sk-known-to-nobody"
BODY = {"model": "judge", "messages": messages(CONTROL)}
AWAY = {"error": {"message": "later", "code": "overloaded"}}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def complete(url: str, *, key: str = "", timeout_s: float = 30.0, tries: int = 6) -> str:
    async with open_endpoint(url, key, timeout_s, first_wait_s=0.001) as endpoint:
        return await endpoint.complete(BODY, tries=tries)


async def test_a_completion_is_asked_for_with_the_key_and_without_where_there_is_none() -> None:
    with JudgeServer() as server:
        assert await complete(server.url, key=KEY) == RIGHT
        assert await complete(f"{server.url}/") == RIGHT
    assert [request.authorization for request in server.requests] == [f"Bearer {KEY}", None]
    assert {request.path for request in server.requests} == {"/v1/chat/completions"}
    assert server.requests[0].body == BODY


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
async def test_an_endpoint_that_is_busy_is_asked_again(status: int) -> None:
    with JudgeServer(Reply(status, AWAY), Reply(status, b"<html>")) as server:
        assert await complete(server.url) == RIGHT
    assert len(server.requests) == 3


async def test_an_error_in_a_reply_that_says_all_is_well_is_asked_again() -> None:
    with JudgeServer(Reply(200, AWAY), Reply(200, b"<html>"), Reply(200, [])) as server:
        assert await complete(server.url) == RIGHT


async def test_an_endpoint_is_left_alone_for_as_long_as_it_asks() -> None:
    with JudgeServer(Reply(429, AWAY, {"Retry-After": "0.5"})) as server:
        begun = time.monotonic()
        assert await complete(server.url) == RIGHT
        assert time.monotonic() - begun >= 0.5


async def test_a_question_that_takes_too_long_is_asked_again() -> None:
    with JudgeServer(Reply(200, completion("late"), held_s=2.0)) as server:
        assert await complete(server.url, timeout_s=1.0) == RIGHT
    assert len(server.requests) >= 2


async def test_an_endpoint_that_stays_busy_is_named_with_what_it_answered() -> None:
    with (
        JudgeServer(*[Reply(503, AWAY)] * 3) as server,
        pytest.raises(
            Unavailable, match=r"judge_url: http://.* answered 503 \(overloaded\), at 3 tries"
        ),
    ):
        await complete(server.url, tries=3)
    assert len(server.requests) == 3


async def test_an_endpoint_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"judge_url: http://127.* cannot be reached .*2 tries"):
        await complete(dead_url(), tries=2)


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (Reply(401, {"error": {"message": f"{KEY} is wrong"}}), Unauthenticated, "JUDGE__API_KEY"),
        (Reply(403), Unauthenticated, "answered 403"),
        (Reply(404, {"error": {"code": "model_not_found"}}), InvalidInput, "model_not_found"),
        (
            Reply(400, {"error": {"code": "unsupported_value", "param": "temperature"}}),
            InvalidInput,
            r"judge_parameters: .*\(unsupported_value, temperature\)",
        ),
        (Reply(302, b"", {"Location": "http://127.0.0.1:1/"}), InvalidInput, "judge_url: .* 302"),
    ],
)
async def test_what_trying_again_would_not_mend_is_said_at_once_and_never_with_the_key(
    reply: Reply, kind: type[InferScaleError], said: str
) -> None:
    with JudgeServer(reply) as server:
        with pytest.raises(kind, match=said) as refused:
            await complete(server.url, key=KEY)
        assert len(server.requests) == 1
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (Reply(200, completion(None)), ""),
        (Reply(200, completion([{"type": "text", "text": RIGHT}])), RIGHT),
        (Reply(400, {"error": {"code": "content_filter"}}), ""),
    ],
)
async def test_a_reply_may_come_in_pieces_or_be_refused(reply: Reply, read: Any) -> None:
    with JudgeServer(reply) as server:
        assert await complete(server.url) == read


async def test_the_key_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with JudgeServer(Reply(500)) as server:
        await complete(server.url, key=KEY)
    assert KEY not in caplog.text
