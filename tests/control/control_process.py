"""The real control service as a process of its own, with the packaged embedder."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.control.harness import INTERNAL_TOKEN, OPERATOR_TOKEN
from tests.fixtures_postgres import Database

PACKAGED_DIMENSION = 384


def environment(database: Database, **changes: str) -> dict[str, str]:
    """It listens on a port of its choice."""
    return {
        **os.environ,
        "INFERSCALE_DATABASE__URL": database.app_url.render_as_string(False),
        "INFERSCALE_CONTROL__LISTEN": "127.0.0.1:0",
        "INFERSCALE_CONTROL__INTERNAL_TOKEN": INTERNAL_TOKEN,
        "INFERSCALE_CONTROL__OPERATOR_TOKEN": OPERATOR_TOKEN,
        "INFERSCALE_CONTROL__GRACE_S": "2",
        "INFERSCALE_EMBEDDER__DEVICE": "cpu",
        **changes,
    }


def port_in(log: str) -> str | None:
    """The port of the line that says that it listens."""
    found = re.search(r"rpc\.listening .*port=(\d+)", log)
    return found[1] if found else None


class ControlProcess:
    """Logs into a file, since nobody reads a pipe for as long as a module runs."""

    def __init__(self, log: Path, environment: dict[str, str]) -> None:
        self.log = log
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Its address, once it listens."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "services.control"),
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(60):
            while (port := port_in(self.log.read_text())) is None:
                assert self._process.returncode is None, self.log.read_text()[-4_000:]
                await asyncio.sleep(0.05)
        return f"127.0.0.1:{port}"

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
