"""What the command line says of a judge, checked before anything is asked."""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from inferscale_core.errors import InvalidInput
from inferscale_core.settings import JudgeSettings
from services.evaluation.dataset import Conversation
from services.evaluation.judge.endpoint import KEY, open_endpoint
from services.evaluation.judge.folder import judge_folder
from services.evaluation.judge.judge import Judge, judged_by
from services.evaluation.judge.verdict_file import VerdictFile

AT_ONCE = 8
TIMEOUT_S = 60.0
PARAMETERS = {"temperature": 0}
OURS = ("model", "messages", "n", "stream")


@dataclass(frozen=True, slots=True)
class JudgeAt:
    """key: empty where none is sent; in no representation."""

    url: str
    model: str
    at_once: int
    timeout_s: float
    parameters: Mapping[str, Any]
    key: str = field(repr=False)

    async def check(self, folder: Path) -> None:
        """Raises where no verdicts are to be had from it."""
        async with self._open(folder) as judge:
            await judge.check()

    async def judge(self, folder: Path, conversations: Sequence[Conversation]) -> None:
        """All answers to questions of these conversations that the folder has scores of."""
        name = judged_by(self.model, self.parameters)
        async with self._open(folder) as judge:
            await judge.check()
            await judge_folder(folder, conversations, judge, name, self.at_once)

    @asynccontextmanager
    async def _open(self, folder: Path) -> AsyncIterator[Judge]:
        verdicts = VerdictFile(folder, judged_by(self.model, self.parameters))
        async with open_endpoint(self.url, self.key, self.timeout_s) as endpoint:
            yield Judge(endpoint, self.model, self.parameters, verdicts)


def add_judge_options(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    group = parser.add_argument_group(
        "a judge",
        "An OpenAI-compatible endpoint that is sent every question with the given answer and what "
        f"was said, and says whether that is right. Its key is read from {KEY}.",
    )
    group.add_argument("--judge-url", required=required, help="of its API, as https://host/v1")
    group.add_argument("--judge-model", required=required, help="as the endpoint names it")
    group.add_argument("--judge-at-once", type=int, help=f"questions in it (default {AT_ONCE})")
    group.add_argument(
        "--judge-timeout-s", type=float, help=f"of one question (default {TIMEOUT_S:g})"
    )
    group.add_argument(
        "--judge-parameters",
        metavar="JSON",
        help='sent beside the question; default {"temperature": 0}, of which null takes it out',
    )


def judge_at(options: argparse.Namespace, settings: JudgeSettings) -> JudgeAt | None:
    """None where none is wanted. Raises InvalidInput for options that do not fit."""
    given = [
        name
        for name, value in vars(options).items()
        if name.startswith("judge_") and value is not None
    ]
    if not given:
        return None
    for name in ("judge_url", "judge_model"):
        if name not in given:
            raise InvalidInput(name, f"is needed with {given[0]}")
    return JudgeAt(
        url=_url(options.judge_url),
        model=options.judge_model,
        at_once=_within("judge_at_once", options.judge_at_once, AT_ONCE, 1, 256),
        timeout_s=_within("judge_timeout_s", options.judge_timeout_s, TIMEOUT_S, 1, 3600),
        parameters=PARAMETERS | _parameters(options.judge_parameters),
        key=_key(settings),
    )


def _url(text: str) -> str:
    """Without what may be a secret: the command is kept with the scores."""
    try:
        parts = urlsplit(text)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise InvalidInput("judge_url", "is not like https://host/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput("judge_url", f"holds more than host and path; a key belongs in {KEY}")
    return text.rstrip("/").removesuffix("/chat/completions")


def _key(settings: JudgeSettings) -> str:
    key = settings.api_key.get_secret_value().strip() if settings.api_key else ""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InvalidInput(KEY, "has signs that no header can hold")
    return key


def _parameters(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as exc:
        raise InvalidInput("judge_parameters", "is no JSON") from exc
    if not isinstance(found, dict):
        raise InvalidInput("judge_parameters", "is no JSON object")
    if set(found) & set(OURS):
        raise InvalidInput("judge_parameters", f"may not set {', '.join(OURS)}")
    return found


def _within(field_name: str, value: Any, default: Any, least: int, most: int) -> Any:
    if value is None:
        return default
    if not least <= value <= most:
        raise InvalidInput(field_name, f"is {least} to {most}")
    return value
