from __future__ import annotations

import os
import re

import pytest

ONE_ENGINE = re.compile(r"tests/exactness/.*\[(.*?(?:float32|bfloat16|fp8|int8|int4))")
"""Group 1: the parameter of a test that names the engine which it shares with others."""


def pytest_configure(config: pytest.Config) -> None:
    """Of several test processes each keeps to one core: their engines would spin on the others'."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        cores = sorted(os.sched_getaffinity(0))
        core = cores[int(worker.removeprefix("gw")) % len(cores)]
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(core)
        os.environ["OMP_NUM_THREADS"] = "1"
    elif config.getoption("numprocesses", None):
        config.pluginmanager.register(_SharedFixtures())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start engines come last: whatever else is wrong shows within the first minutes.

    The order is otherwise kept, so tests that share an engine stay together.
    """
    items.sort(key=lambda item: item.get_closest_marker("engine") is not None)


class _SharedFixtures:
    """Tests of one file go to one process, but each engine of a parametrised file to any."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> object:
        from xdist.scheduler import LoadScopeScheduling

        class Scheduling(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                engine = ONE_ENGINE.match(nodeid)
                return nodeid.split("::")[0] + (f"[{engine[1]}]" if engine else "")

        config.option.loadscopereorder = False  # Keeps the order given above.
        return Scheduling(config, log)
