"""One model as a judge, with the verdicts it gave before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from inferscale_core.errors import InvalidInput
from services.evaluation.judge.endpoint import FIRST_TRIES, TRIES, ChatEndpoint
from services.evaluation.judge.verdict_file import VerdictFile
from services.evaluation.judge.wording import (
    CONTROL,
    INSTRUCTION,
    Triple,
    Verdict,
    messages,
    verdict_in,
)
from services.evaluation.scores import JudgedBy


class Judge:
    """parameters: sent beside the question; those that are None are left out."""

    def __init__(
        self,
        endpoint: ChatEndpoint,
        model: str,
        parameters: Mapping[str, Any],
        verdicts: VerdictFile,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._parameters = {k: v for k, v in parameters.items() if v is not None}
        self._verdicts = verdicts

    async def check(self) -> None:
        """Ask what everybody knows the answer to, unless it was answered before.

        Raises InvalidInput for a model that is no judge, and what the endpoint raises.
        """
        if self._verdicts.get(CONTROL) is not None:
            return
        verdict = verdict_in(await self._ask(CONTROL, FIRST_TRIES))
        if verdict is not Verdict.RIGHT:
            problem = f"{self._model} finds an answer {verdict} that is the given one word for word"
            raise InvalidInput("judge_model", problem)
        self._verdicts.add(CONTROL, verdict)

    def known(self, triple: Triple) -> Verdict | None:
        """The verdict as far as no question is needed for it: where nothing was said, none is."""
        return self._verdicts.get(triple) if triple.said else Verdict.WRONG

    async def ask(self, triple: Triple) -> Verdict:
        """A verdict that is not known, and is from now on."""
        verdict = verdict_in(await self._ask(triple, TRIES))
        self._verdicts.add(triple, verdict)
        return verdict

    async def _ask(self, triple: Triple, tries: int) -> str:
        body = {"model": self._model, "messages": messages(triple), **self._parameters}
        return await self._endpoint.complete(body, tries=tries)


def judged_by(model: str, parameters: Mapping[str, Any]) -> JudgedBy:
    asked = json.dumps([INSTRUCTION, dict(parameters)], sort_keys=True)
    return JudgedBy(model, hashlib.sha256(asked.encode()).hexdigest()[:8])
