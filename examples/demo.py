"""`python -m examples.demo [--keep]`: the whole way from AddMemory to the first token, for real.

Starts Postgres, control and a worker with vLLM on this machine, stores five months of Mira's life,
waits until every fact is encoded, and asks questions: injected, and with the same prompt as text.
Ends everything it started. With --keep it stays up and says how to call it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from examples import view
from examples.answers import Pair
from examples.asking import NotComparable, ask_pair
from examples.loading import store_story, wait_until_encoded
from examples.preflight import NotReady, WrongSetting
from examples.processes import EndedBySignal, ServiceFailed, ended_by_signals
from examples.progress import Steps
from examples.stack import Stack, running_stack
from examples.story import Story, load_story
from inferscale_core.client import InferScale, Operator
from inferscale_core.errors import InferScaleError

FOLDER = Path(".demo")
RESULTS = FOLDER / "results.json"
TENANT = "demo"
K_OF_QUESTIONS = 20
ANSWER_TOKENS = 80


@dataclass(frozen=True)
class Demo:
    """num_questions and k_swept: how much of it is asked; fewer make a shorter demo."""

    console: Console
    steps: Steps
    story: Story
    num_questions: int = 5
    k_swept: tuple[int, ...] = (5, 10, 20, 50)

    def run(self, *, keep: bool) -> None:
        started = time.monotonic()
        view.show_heading(self.console, "Starting the services")
        with running_stack(FOLDER, self.steps) as stack:
            self.console.print(f"  [dim]ready after {time.monotonic() - started:.0f} s[/]")
            with Operator(stack.address, stack.operator_token) as operator:
                tenant = operator.create_tenant(TENANT, [stack.model])
            with InferScale(stack.address, tenant.api_key) as client:
                view.show_heading(self.console, "Storing and encoding")
                self.store_and_encode(client, stack)
                self.warm_up(client)
                self.ask_questions(client)
                self.sweep(client)
            swept = ", ".join(map(str, self.k_swept))
            self.console.print(
                f"\n  Figures of k = {swept} in [bold]{RESULTS}[/], logs in [bold]{FOLDER}/[/]; "
                f"{time.monotonic() - started:.0f} s in all."
            )
            if keep:
                self.stay_up(stack, tenant.api_key)

    def store_and_encode(self, client: InferScale, stack: Stack) -> None:
        story = self.story
        with self.steps.step("Store turns and facts") as step:
            num_facts = store_story(client, story, story.user_id)
            step.result(f"{len(story.turns)} turns, {num_facts} facts")
        with self.steps.step("Encode every fact") as step:
            wait_until_encoded(client, story.user_id, num_facts, stack, step)

    def warm_up(self, client: InferScale) -> None:
        with self.steps.step("Warm up (not counted)"):
            ask_pair(client, self.story.user_id, "Who am I?", k=2)

    def ask_questions(self, client: InferScale) -> None:
        questions = self.story.questions[: self.num_questions]
        if not questions:
            return
        view.show_heading(self.console, f"{len(questions)} questions, k = {K_OF_QUESTIONS}")
        for number, question in enumerate(questions, start=1):
            view.show_question(self.console, number, len(questions), question.text)
            pair = ask_pair(
                client,
                self.story.user_id,
                question.text,
                k=K_OF_QUESTIONS,
                max_tokens=ANSWER_TOKENS,
                onlooker=view.AnswerView(self.console, self.steps),
            )
            view.show_pair(self.console, pair)

    def sweep(self, client: InferScale) -> None:
        question = self.story.wide_question.text
        view.show_heading(self.console, "One question with more and more facts")
        self.console.print(f"  [bold cyan]{escape(question)}[/]\n")
        pairs: list[Pair] = []
        for k in self.k_swept:
            onlooker = view.PairView(self.console, self.steps, f"k = {k}")
            pairs.append(ask_pair(client, self.story.user_id, question, k=k, onlooker=onlooker))
        view.show_sweep(self.console, pairs)
        view.show_bars(self.console, pairs)
        RESULTS.write_text(json.dumps([pair.as_row() for pair in pairs], indent=1) + "\n")

    def stay_up(self, stack: Stack, api_key: str) -> None:
        view.show_heading(self.console, "The services stay up; Ctrl-C ends them")
        # As it is, unwrapped: it is there to be copied.
        print(call_examples(stack.address, api_key, self.story), flush=True)
        while True:
            stack.require_running()
            time.sleep(1)


def call_examples(address: str, api_key: str, story: Story) -> str:
    """Flush left, so that each can be pasted as it is."""
    question = "When does my sister get married?"
    body = json.dumps(
        {"user_id": story.user_id, "messages": [{"role": "user", "content": question}]}
    )
    return f"""
From Python ({shlex.quote(sys.executable)}):

from inferscale_core.client import Delta, InferScale

with InferScale("{address}", "{api_key}") as client:
    for event in client.chat("{story.user_id}", "{question}"):
        if isinstance(event, Delta):
            print(event.text, end="", flush=True)

With grpcurl:

grpcurl -plaintext -H 'authorization: Bearer {api_key}' \\
  -d '{body}' \\
  {address} inferscale.v1.ChatService/Chat
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="stay up and say how to call it")
    parser.add_argument("--questions", type=int, default=5, choices=range(6), metavar="N")
    parser.add_argument("--k", type=int, nargs="+", default=[5, 10, 20, 50], metavar="K")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    demo = Demo(console, Steps(console), load_story(), options.questions, tuple(options.k))
    try:
        with ended_by_signals():
            demo.run(keep=options.keep)
    except KeyboardInterrupt:
        console.print("\n  Stopped; nothing is left running.")
        return 0 if options.keep else 130
    except EndedBySignal as ended:
        console.print("\n  Stopped; nothing is left running.")
        return 0 if options.keep else ended.exit_code
    except WrongSetting as error:
        print(f"The demo cannot start: {error}", file=sys.stderr)
        return 2
    except (NotReady, ServiceFailed, InferScaleError, NotComparable) as error:
        console.print(f"\n  [bold red]The demo cannot go on:[/] {escape(str(error))}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
