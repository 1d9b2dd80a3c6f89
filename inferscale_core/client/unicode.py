"""Text that cannot be sent is the caller's input, not a failure of ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from inferscale_core.errors import InvalidInput

_Client = TypeVar("_Client")


def refuses_lone_surrogates(client: type[_Client]) -> type[_Client]:
    """Let every public call of a client raise InvalidInput for text that UTF-8 cannot hold.

    Python strings may hold half of a surrogate pair, for example of JSON that was cut, and protobuf
    raises UnicodeEncodeError for it.
    """
    for name, function in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_") and not inspect.isasyncgenfunction(function):
            setattr(client, name, _refusing(function))
    return client


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except UnicodeEncodeError as exc:
                raise _refusal(exc) from None

        return call

    @functools.wraps(function)
    async def call_later(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except UnicodeEncodeError as exc:
            raise _refusal(exc) from None

    return call_later


def _refusal(exc: UnicodeEncodeError) -> InvalidInput:
    """Without its cause, which quotes the text."""
    return InvalidInput(
        "request", f"a text has a lone surrogate at character {exc.start} and is not Unicode"
    )
