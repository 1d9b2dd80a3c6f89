"""A real worker as a process of its own, with a random Llama of three layers."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.control.harness import INTERNAL_TOKEN
from tests.engine_processes import engine_processes
from tests.tiny_models import LLAMA
from tests.tiny_tokenizers import byte_level, save_with

MODEL = "tiny-llama"


def save_model(folder: Path) -> Path:
    path = LLAMA.save(folder)
    save_with(byte_level(), path)
    return path


class WorkerProcess:
    """Started again it keeps its name and its port, and holds nothing."""

    def __init__(self, control_address: str, model: Path, log: Path, **changes: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.log = log
        self._environment = {
            **os.environ,
            "INFERSCALE_WORKER__WORKER_ID": "real-worker",
            "INFERSCALE_WORKER__LISTEN": f"127.0.0.1:{port}",
            "INFERSCALE_WORKER__CONTROL": control_address,
            "INFERSCALE_WORKER__INTERNAL_TOKEN": INTERNAL_TOKEN,
            "INFERSCALE_ENGINE__MODEL": str(model),
            "INFERSCALE_ENGINE__SERVED_NAME": MODEL,
            "INFERSCALE_ENGINE__DTYPE": "float32",
            "INFERSCALE_ENGINE__MAX_MODEL_LEN": "5120",
            "INFERSCALE_ENGINE__MAX_NUM_SEQS": "16",
            "INFERSCALE_ENGINE__KV_CACHE_BYTES": str(64 << 20),
            "INFERSCALE_ENGINE__ARENA_BYTES": str(32 << 20),
            "INFERSCALE_ENGINE__ENFORCE_EAGER": "true",
            "INFERSCALE_EMBEDDER__DEVICE": "cpu",
            **changes,
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Joins control when its engine is up, half a minute later."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "services.worker"),
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextmanager
    def engine_slowed(self) -> Iterator[None]:
        """vLLM computes about a tenth of the time meanwhile."""
        assert self._process is not None
        processes = engine_processes(self._process.pid)
        assert processes
        ended = threading.Event()

        def pace() -> None:
            while not ended.wait(0.005):
                for process in processes:
                    process.suspend()
                ended.wait(0.05)
                for process in processes:
                    process.resume()

        thread = threading.Thread(target=pace)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextmanager
    def engine_stopped(self) -> Iterator[None]:
        """vLLM computes nothing meanwhile; the service itself goes on."""
        assert self._process is not None
        processes = engine_processes(self._process.pid)
        assert processes
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def require_running(self) -> None:
        assert self._process is not None
        assert self._process.returncode is None, self.log.read_text()[-4_000:]

    async def terminate(self) -> int:
        """Its exit code after SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(60):
            return await self._process.wait()

    async def kill(self) -> None:
        """With its engine, which is a process of the same session."""
        if self._process is None or self._process.returncode is not None:
            return
        os.killpg(self._process.pid, 9)
        await self._process.wait()
