"""Chat completions of one OpenAI-compatible endpoint, asked again while it is busy or away.

The key goes into one header and nowhere else. What an endpoint says about an error may repeat what
it was asked, so that errors here name status and code alone.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from inferscale_core.errors import InferScaleError, InvalidInput, Unauthenticated, Unavailable
from inferscale_core.settings import variable

TRIES = 6
FIRST_TRIES = 3
"""Of the first question: a wrong address is to be said soon."""
FIRST_WAIT_S = 1.0
"""Doubled from one try to the next."""
LONGEST_WAIT_S = 60.0
"""Also where the endpoint asks for more."""

KEY = variable("judge", "api_key")
_REFUSALS = ("content_filter", "content_policy_violation")
"""Codes of an endpoint that will not read one text; others it may."""


class ChatEndpoint:
    """Any number of completions at once. Open it with `open_endpoint`."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, *, first_wait_s: float = FIRST_WAIT_S
    ) -> None:
        """url: of the API, with its version, as in https://host/v1."""
        self._session = session
        self._base = url
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._proxy = _proxy(self._url)
        self._first_wait_s = first_wait_s

    async def complete(self, body: Mapping[str, Any], *, tries: int = TRIES) -> str:
        """The reply; empty where the endpoint refuses to give one.

        Raises Unavailable when it did not answer at all these tries, InvalidInput or
        Unauthenticated for what trying again would not mend.
        """
        for number in range(1, tries + 1):
            try:
                return await self._once(body)
            except _NotNow as exc:
                if number == tries:
                    raise Unavailable(
                        f"judge_url: {self._base} {exc.seen}, at {tries} tries"
                    ) from exc
                await asyncio.sleep(self._wait_s(number, exc.wait_s))
        raise AssertionError("tries is at least 1")

    async def _once(self, body: Mapping[str, Any]) -> str:
        try:
            request = self._session.post(
                self._url, json=body, proxy=self._proxy, allow_redirects=False
            )
            async with request as response:
                answer = await response.read()
        except TimeoutError as exc:
            raise _NotNow("did not answer in time") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise _NotNow(f"cannot be reached ({type(exc).__name__})") from exc
        said = _json(answer)
        if response.status == 200:
            return _reply(said)
        code = _code(said)
        if response.status in (408, 409, 425, 429) or response.status >= 500:
            asked_for = _seconds(response.headers.get("Retry-After", ""))
            raise _NotNow(f"answered {response.status}{code}", asked_for)
        if response.status == 400 and any(name in code for name in _REFUSALS):
            return ""
        raise self._refused(response.status, code)

    def _refused(self, status: int, code: str) -> InferScaleError:
        seen = f"{self._base} answered {status}{code}"
        if status in (401, 403):
            return Unauthenticated(f"judge_url: {seen}; {KEY} holds the key it is sent")
        if status in (400, 422):
            problem = f"{seen}; what is sent beside the question can be changed"
            return InvalidInput("judge_parameters", problem)
        if status == 404:
            return InvalidInput("judge_url", f"{seen}: no such path, or no such judge_model")
        return InvalidInput("judge_url", seen)

    def _wait_s(self, number: int, asked_for_s: float) -> float:
        """Drawn, so that requests that failed together do not come together again."""
        wait = self._first_wait_s * 2.0 ** (number - 1) * random.uniform(0.5, 1.0)
        return min(LONGEST_WAIT_S, max(wait, asked_for_s))


class _NotNow(Exception):
    """Worth another try. wait_s: how long the endpoint asks to be left alone."""

    def __init__(self, seen: str, wait_s: float = 0.0) -> None:
        super().__init__(seen)
        self.seen = seen
        self.wait_s = wait_s


@asynccontextmanager
async def open_endpoint(
    url: str, key: str, timeout_s: float, *, first_wait_s: float = FIRST_WAIT_S
) -> AsyncIterator[ChatEndpoint]:
    """key: empty where none is to be sent."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        yield ChatEndpoint(session, url, first_wait_s=first_wait_s)


def _proxy(url: str) -> str | None:
    """As the environment says. The session's own reading of it would take passwords from .netrc."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _json(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return None


def _reply(said: Any) -> str:
    """Some gateways answer 200 with an error in it, which another try may mend."""
    try:
        content = said["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as exc:
        raise _NotNow(f"answered 200{_code(said)} without a chat completion") from exc
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _code(said: Any) -> str:
    """An error's code, type and parameter, as far as they are names."""
    error = said.get("error") if isinstance(said, dict) else None
    if not isinstance(error, dict):
        return ""
    words = [str(error.get(name) or "") for name in ("code", "type", "param")]
    named = [word for word in dict.fromkeys(words) if re.fullmatch(r"[a-z0-9_.]{1,40}", word)]
    return f" ({', '.join(named)})" if named else ""


def _seconds(text: str) -> float:
    """0 for what is no number: a date is rare, and waiting is bounded anyway."""
    return float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) else 0.0
