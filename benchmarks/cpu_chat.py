"""Time to first token against k, injected and as text, and where an injected Chat's time goes.

Rounds go over all k; within a round each k is asked injected and as text, one after the other, so
that a slow minute of the machine meets both. Medians over the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarks.rows import Row, make_rows
from examples.answers import Asked, Pair
from examples.asking import ask_pair
from examples.progress import Steps
from examples.story import Story
from inferscale_core.client import InferScale

K_SWEPT = (5, 10, 20, 50)
K_OF_STEPS = 50
ROUNDS = 5

_STEPS: dict[str, Callable[[Asked], float]] = {
    "bring the worker's copy up to date": lambda asked: asked.timings.sync_ms,
    "embed the question": lambda asked: asked.timings.embed_ms,
    "find the nearest facts": lambda asked: asked.timings.retrieve_ms,
    "order and plan tokens": lambda asked: asked.timings.plan_ms,
    "wait in the engine's queue": lambda asked: asked.timings.queue_ms,
    "rotate and write the chunks": lambda asked: asked.timings.inject_ms,
    "prefill the tail": lambda asked: asked.timings.prefill_ms,
    "rest in the worker": lambda asked: _rest_in_worker_ms(asked),
    "control and the network": lambda asked: asked.ttft_s * 1e3 - asked.timings.first_token_ms,
}


def measure_chat(
    client: InferScale, story: Story, steps: Steps, about: Mapping[str, str], rounds: int = ROUNDS
) -> list[Row]:
    """Every fact of the story is encoded for `story.user_id` already."""
    pairs: dict[int, list[Pair]] = {k: [] for k in K_SWEPT}
    question = story.wide_question.text
    ask_pair(client, story.user_id, question, k=K_SWEPT[-1])  # warms up; not counted
    for number in range(rounds):
        for k in K_SWEPT:
            with steps.step(f"round {number + 1} of {rounds}, k = {k}") as step:
                pair = ask_pair(client, story.user_id, question, k=k)
                step.result(f"injected {pair.injected.ttft_s:.2f} s, text {pair.text.ttft_s:.2f} s")
                pairs[k].append(pair)
    figures = [_ttft_figures(k, measured) for k, measured in pairs.items()]
    ttft = make_rows("chat_ttft", figures, **about)
    breakdown = _step_figures([pair.injected for pair in pairs[K_OF_STEPS]])
    return [*ttft, *make_rows("chat_steps", breakdown, **about)]


def _ttft_figures(k: int, pairs: Sequence[Pair]) -> dict[str, float]:
    injected = [pair.injected.ttft_s for pair in pairs]
    text = [pair.text.ttft_s for pair in pairs]
    return {
        **pairs[0].as_row(),
        "k": k,
        "pairs": len(pairs),
        "ttft_injected_s": round(median(injected), 4),
        "ttft_injected_min_s": round(min(injected), 4),
        "ttft_injected_max_s": round(max(injected), 4),
        "ttft_text_s": round(median(text), 4),
        "ttft_text_min_s": round(min(text), 4),
        "ttft_text_max_s": round(max(text), 4),
    }


def _step_figures(asked: Sequence[Asked]) -> list[dict[str, object]]:
    whole_ms = median(one.ttft_s * 1e3 for one in asked)
    lines = [(name, median(take(one) for one in asked)) for name, take in _STEPS.items()]
    lines.append(("first token at the client", whole_ms))
    return [
        {"k": K_OF_STEPS, "step": name, "ms": round(ms, 3), "share": round(ms / whole_ms, 4)}
        for name, ms in lines
    ]


def _rest_in_worker_ms(asked: Asked) -> float:
    """Between the named steps: handing over between threads and processes, and sampling."""
    timings = asked.timings
    named = (
        timings.sync_ms
        + timings.embed_ms
        + timings.retrieve_ms
        + timings.plan_ms
        + timings.queue_ms
        + timings.inject_ms
        + timings.prefill_ms
    )
    return max(0.0, timings.first_token_ms - named)
