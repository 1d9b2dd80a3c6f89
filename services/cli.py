"""The command `inferscale`: the processes and tools, under one name for images.

Each is the same as `python -m ...`. What follows `eval` or `verify` belongs to it.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """takes_arguments: hands on what follows the command; otherwise nothing may follow."""

    module: str
    summary: str
    arguments: tuple[str, ...] = ()
    takes_arguments: bool = False


COMMANDS = {
    "control": Command("services.control", "serve the public API; any number of replicas"),
    "worker": Command("services.worker", "serve one model; one for each GPU or group of GPUs"),
    "migrate": Command(
        "migrations", "bring the database to this version's schema", arguments=("upgrade",)
    ),
    "verify": Command(
        "services.verification",
        "say whether a model can be served, and how exactly",
        takes_arguments=True,
    ),
    "eval": Command(
        "services.evaluation",
        "measure answers over injected facts on a data set",
        takes_arguments=True,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="inferscale",
        description="InferScale's processes and tools. Settings come from the environment.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        commands.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            # Their own parser answers --help.
            add_help=not command.takes_arguments,
        )
    chosen, rest = parser.parse_known_args()
    command = COMMANDS[chosen.command]
    if rest and not command.takes_arguments:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    # The module is imported only now: the image of one process lacks the packages of another.
    sys.argv = [command.module, *command.arguments, *rest]
    runpy.run_module(command.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
