"""What a user of many facts costs the others: `python -m benchmarks.large_user [FACTS]`.

A worker's own parts on an engine without a model, so nothing but the host's work is timed. While
one user's facts are fetched, encoded, and re-keyed after a delete, another user with 50 facts chats
without a pause. The chat's times beside those of a worker that does nothing else are the result;
both are of the same process within minutes. The directory's work, which a real engine does in its
own process, is in them, and told.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import make_rows, replace_rows
from inferscale_core.ids import FactId, ModelRevision
from inferscale_core.memory.recipes import DEFAULT_RECIPE
from inferscale_core.prompt import ChatMessage, PromptFormat
from inferscale_core.settings import WorkerSettings
from inferscale_core.vllm_connector.params import RequestParams
from services.worker.app import build_parts
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.model_files import ModelFiles
from services.worker.engine.protocol import SamplingOptions
from services.worker.engine.reports import Reports
from services.worker.generate import GenerateCommand
from services.worker.turns import prompt_turns
from tests.tiny_tokenizers import byte_level
from tests.worker.control import MemoryControl, WordEmbedder
from tests.worker.fake_engine import FakeEngine

FACTS = 10_000
OTHER_FACTS = 50
IDLE_CHATS = 200
WORDS = [f"word{number}" for number in range(400)]


class TimedEngine(FakeEngine):
    """engine_s: what the directory took, which is the engine's own process in reality."""

    engine_s = 0.0
    longest_s = 0.0

    def _schedule(self, params: RequestParams) -> None:
        began = time.perf_counter()
        super()._schedule(params)
        took = time.perf_counter() - began
        self.engine_s += took
        self.longest_s = max(self.longest_s, took)


class LargeUser:
    def __init__(self, num_facts: int) -> None:
        recipe = DEFAULT_RECIPE
        self.num_facts = num_facts
        self.control = MemoryControl(page_size=500)
        mirror, reports = DirectoryMirror(), Reports()
        self.engine = engine = TimedEngine(mirror, reports, num_pages=60 * num_facts)
        self.parts = build_parts(
            WorkerSettings(),
            engine,
            ModelFiles(Path(), "tiny", ModelRevision("tiny@1")),
            recipe,
            PromptFormat(byte_level(), recipe),
            WordEmbedder(),
            self.control,
            mirror,
            reports,
            device=torch.device("cpu"),
        )
        self._draw = random.Random(7)
        for number in range(num_facts):
            self.control.add(f"f{number:05}", self._text(), "large")
        for number in range(OTHER_FACTS):
            self.control.add(f"o{number:05}", self._text(), "other")

    def _text(self) -> str:
        return " ".join(self._draw.choices(WORDS, k=6))

    async def sync(self) -> None:
        await self.parts.users.at_least(self.control.at("large"))

    async def encode(self, user_id: str = "large") -> None:
        async for result in self.parts.encode(self.control.at(user_id)):
            assert result.reason is None, result

    async def delete(self) -> None:
        """An early fact, which many have seen."""
        self.control.remove("f00010", "large")
        await self.parts.forget(self.control.at("large"), [FactId("f00010")], [], [])

    async def chat(self) -> float:
        """Milliseconds of one chat of the other user."""
        command = GenerateCommand(
            user=self.control.at("other"),
            messages=(ChatMessage("user", "word1 word2 word3"),),
            k=20,
            sampling=SamplingOptions(max_tokens=2),
        )
        began = time.perf_counter()
        async for _ in self.parts.generate(command):
            pass
        return (time.perf_counter() - began) * 1e3


@asynccontextmanager
async def chatting(user: LargeUser) -> AsyncIterator[list[float]]:
    """The times of the chats of the block, one after the other."""
    took: list[float] = []
    ended = False

    async def chat() -> None:
        while not ended:
            took.append(await user.chat())

    task = asyncio.create_task(chat())
    try:
        yield took
    finally:
        ended = True
        await task


async def phase(user: LargeUser, name: str, work: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    user.engine.engine_s = user.engine.longest_s = 0.0
    began = time.perf_counter()
    async with chatting(user) as took:
        await work()
        seconds = time.perf_counter() - began
    took.sort()
    figure = {
        "phase": name,
        "facts": user.num_facts,
        "seconds": seconds,
        "engine_s": user.engine.engine_s,
        "engine_longest_ms": user.engine.longest_s * 1e3,
        "chats": len(took),
        "chat_median_ms": statistics.median(took),
        "chat_p99_ms": took[int(0.99 * (len(took) - 1))],
        "chat_longest_ms": took[-1],
    }
    print(figure, flush=True)
    return figure


async def measure(num_facts: int) -> list[dict[str, Any]]:
    user = LargeUser(num_facts)
    await user.parts.header.ensure()
    await user.encode("other")

    async def nothing() -> None:
        for _ in range(IDLE_CHATS):
            await user.chat()

    async with prompt_turns(user.parts.activity):
        return [
            await phase(user, "nothing else", nothing),
            await phase(user, "first fetch", user.sync),
            await phase(user, "first encoding", user.encode),
            await phase(user, "a delete", user.delete),
            await phase(user, "encoding its dependants", user.encode),
            await phase(user, "nothing else, again", nothing),
        ]


def main() -> None:
    num_facts = int(sys.argv[1]) if len(sys.argv) > 1 else FACTS
    replace_rows(make_rows("large_user", asyncio.run(measure(num_facts))))


if __name__ == "__main__":
    main()
