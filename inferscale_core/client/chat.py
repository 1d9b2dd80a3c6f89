"""What a chat is asked with and the events it answers with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Serving(StrEnum):
    """How a fact reached the model."""

    INJECTED = "injected"
    NATIVE_HIT = "native_hit"
    PREFILLED = "prefilled"


class ServingMode(StrEnum):
    """`TEXT` prefills the same prompt tokens that `INJECTED` would inject: the baseline."""

    INJECTED = "injected"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """role: `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """None: the service's default, which docs/api.md states."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    seed: int | None = None
    stop: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ServedFact:
    """score: cosine similarity to the question. serving: None when it is not known yet."""

    memory_id: str
    revision: int
    score: float
    num_tokens: int
    serving: Serving | None
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and facts of one chat, by the way they were served."""

    prompt_tokens: int
    injected_tokens: int
    native_hit_tokens: int
    prefilled_tokens: int
    completion_tokens: int
    facts_injected: int
    facts_native_hit: int
    facts_prefilled: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds on the worker's clock."""

    sync_ms: float
    embed_ms: float
    retrieve_ms: float
    plan_ms: float
    queue_ms: float
    inject_ms: float
    prefill_ms: float
    first_token_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The facts found, in prompt order (best-ranked last), with the planned way of serving.

    They were searched for by the last `searched_tokens` of the last message's `question_tokens`,
    tokens of the embedder; both are 0 when nothing was searched.
    """

    facts: tuple[ServedFact, ...]
    memory_version: int
    worker_id: str
    model_revision: str
    recipe: str
    question_tokens: int = 0
    searched_tokens: int = 0

    @property
    def is_question_cut(self) -> bool:
        """The last message is longer than the embedder reads, so its begin was not searched for."""
        return self.searched_tokens < self.question_tokens


@dataclass(frozen=True, slots=True)
class Served:
    """With the first token: how each fact was really served."""

    facts: tuple[ServedFact, ...]
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """finish_reason: `stop`, `length` or `abort`."""

    finish_reason: str
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class Scoring:
    """Asks how likely the model finds an answer. compared_token_ids: first tokens to look at, 128
    at most; the 100 likeliest when there are none."""

    answer: str
    compared_token_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Scored:
    """Natural logarithms of probabilities. prompt_digest: names the prompt's tokens. answer: of
    each token of it. first: of first tokens by id; the likeliest is `top_token_id`."""

    prompt_digest: str
    answer: tuple[float, ...]
    top_token_id: int
    first: Mapping[int, float]


ChatEvent = Retrieved | Scored | Served | Delta | Done


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A whole chat, read to its end."""

    text: str
    retrieved: Retrieved | None
    served: Served | None
    done: Done
    scored: Scored | None = None
