"""What the use cases ask of an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from inferscale_core.kv.tiers import Tier
from inferscale_core.vllm_connector.params import RequestParams


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """temperature 0 is greedy. seed None: drawn by the engine."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 256
    min_tokens: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()


ONE_TOKEN = SamplingOptions(max_tokens=1)

MAX_LOGPROBS = 128
"""Of one token. As many as vLLM takes token ids to look up (its MAX_LOGPROB_TOKEN_IDS)."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """params.handle names the request; cache_salt says with whom it may share cached blocks.

    top_logprobs: the first output brings the log-probabilities of so many likeliest first tokens,
    20 at most. What is generated stays the same.
    """

    token_ids: tuple[int, ...]
    params: RequestParams
    cache_salt: str
    sampling: SamplingOptions
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class NextToken:
    """What the model would say first behind a prompt. token_id: the likeliest. logprobs: natural
    logarithms, before any sampling rule, by token id; of those asked for and of the likeliest."""

    token_id: int
    logprobs: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """What came since the last one. num_tokens: generated so far. Times on the engine's clock.

    finish_reason: None until the last one, then "stop", "length" or "abort". first: with the first
    output of a request that asks for log-probabilities.
    """

    text: str
    num_tokens: int
    finish_reason: str | None
    queued_s: float
    scheduled_s: float
    first_token_s: float
    first: NextToken | None = None


@dataclass(frozen=True, slots=True)
class ArenaSize:
    """The pools of each rank. A chunk takes whole pages. num_host_pages, num_disk_pages: of the
    tiers below the arena, 0 where there is no such tier."""

    num_pages: int
    page_tokens: int
    bytes_per_token: int
    num_host_pages: int = 0
    num_disk_pages: int = 0

    def pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    def num_pages_of(self, tier: Tier) -> int:
        by_tier = {
            Tier.GPU: self.num_pages,
            Tier.HOST: self.num_host_pages,
            Tier.DISK: self.num_disk_pages,
        }
        return by_tier[tier]

    @property
    def largest_tier(self) -> int:
        """Pages. A lower tier has a copy of what a higher one has, so this is what all hold."""
        return max(map(self.num_pages_of, Tier))

    @property
    def page_bytes(self) -> int:
        return self.page_tokens * self.bytes_per_token


class Engine(Protocol):
    """Closing a stream before its end aborts the request.

    Streams raise InvalidInput for a request the engine refuses, EngineError for one that failed and
    Unavailable when the engine has died.
    """

    @property
    def arena(self) -> ArenaSize: ...

    @property
    def max_model_len(self) -> int: ...

    def stream(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]: ...

    async def next_token(
        self, request: EngineRequest, *, top: int = 0, token_ids: Sequence[int] = ()
    ) -> NextToken:
        """The request with log-probabilities: of the `top` likeliest tokens, or of `token_ids`,
        each 128 at most. Its sampling options are not looked at. Raises as streams do."""
        ...


async def run_to_end(engine: Engine, request: EngineRequest) -> None:
    """For requests whose effect is on the directory; what they generate is ignored."""
    async for _ in engine.stream(request):
        pass
