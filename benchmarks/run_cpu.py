"""`python -m benchmarks.run_cpu`: every CPU measurement, into `results/cpu.json`, then the report.

Starts the service twice: with a worker for chats and encoding, and without one for the store, so
that encoding takes nothing from it. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.cpu_chat import ROUNDS, measure_chat
from benchmarks.cpu_encode import measure_encode
from benchmarks.rows import replace_rows
from benchmarks.store_ratio import measure_store
from examples.processes import ended_by_signals
from examples.progress import Steps
from examples.stack import running_stack
from examples.story import load_story
from inferscale_core.client import InferScale, Operator
from inferscale_core.memory.recipes import recipe_by_name
from inferscale_core.settings import Settings

FOLDER = Path(".demo") / "benchmarks"


def run_chat_and_encode(steps: Steps, rounds: int) -> None:
    story = load_story()
    with running_stack(FOLDER, steps) as stack:
        about = {"model": stack.model, "recipe": recipe_by_name(Settings().recipe.name).name}
        with Operator(stack.address, stack.operator_token) as operator:
            tenant = operator.create_tenant("benchmark", [stack.model])
        with InferScale(stack.address, tenant.api_key) as client:
            replace_rows(measure_encode(client, story, stack, steps, about))
            replace_rows(measure_chat(client, story, steps, about, rounds))


def run_store(steps: Steps) -> None:
    with running_stack(FOLDER, steps, with_worker=False) as stack:
        replace_rows(measure_store(stack, steps))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["engine", "store"], help="measure this part alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs for each k")
    options = parser.parse_args()
    steps = Steps(Console(highlight=False))
    with ended_by_signals():
        if options.only in (None, "engine"):
            run_chat_and_encode(steps, options.rounds)
        if options.only in (None, "store"):
            run_store(steps)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
