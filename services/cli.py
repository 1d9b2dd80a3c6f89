"""The command `inferscale`: the same processes as `python -m ...`, under one name for images."""

from __future__ import annotations

import argparse
import runpy
import sys

COMMANDS = {
    "control": ("services.control", [], "serve the public API; any number of replicas"),
    "worker": ("services.worker", [], "serve one model; one for each GPU or group of GPUs"),
    "migrate": ("migrations", ["upgrade"], "bring the database to this version's schema"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="inferscale",
        description="InferScale's processes. Settings come from the environment.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, _, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary, description=summary)
    module, arguments, _ = COMMANDS[parser.parse_args().command]
    # The module is imported only now: the image of one process lacks the packages of another.
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
