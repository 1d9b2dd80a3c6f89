"""The real control service on a real database, with clients of the client library."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import SecretStr

from inferscale_core.client import AsyncInferScale, AsyncOperator, ClientOptions, RetryPolicy
from inferscale_core.client.records import CreatedTenant, Memory
from inferscale_core.settings import (
    ControlSettings,
    DatabaseSettings,
    EmbedderSettings,
    Settings,
)
from services.control.app import ControlApp
from tests.control.fake_embedder import DIMENSION, FakeEmbedder
from tests.control.fake_worker import FakeWorker
from tests.fixtures_postgres import Database

INTERNAL_TOKEN = "internal-token"
OPERATOR_TOKEN = "operator-token"
_numbers = itertools.count(1)
_T = TypeVar("_T")

NO_RETRY = ClientOptions(retries=RetryPolicy(max_attempts=1))


def settings_for(database: Database, **control: Any) -> Settings:
    url = SecretStr(database.app_url.render_as_string(False))
    return Settings(
        database=DatabaseSettings(url=url, listen_url=url, pool_timeout_s=5),
        control=ControlSettings(
            **{
                "listen": "127.0.0.1:0",
                "internal_token": SecretStr(INTERNAL_TOKEN),
                "operator_token": SecretStr(OPERATOR_TOKEN),
                "delete_wait_s": 0.5,
                "grace_s": 2.0,
                **control,
            }
        ),
        embedder=EmbedderSettings(dimension=DIMENSION),
    )


class Control:
    """A running control service. Every tenant made here has a model that no other test has."""

    def __init__(self, settings: Settings, embedder: Any) -> None:
        self.settings = settings
        self.embedder = embedder
        self.app = ControlApp(settings, embedder)
        self.port = 0
        self._opened: list[Any] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.port = await self.app.start()

    async def stop(self, *, grace_s: float = 0.0) -> None:
        for opened in self._opened:
            await opened.close()
        if isinstance(self.embedder, FakeEmbedder):
            self.embedder.release()
        await self.app.server.drain(grace_s)
        await self.app.stop()

    @property
    def operator(self) -> AsyncOperator:
        return self._keep(AsyncOperator(self.address, OPERATOR_TOKEN, NO_RETRY))

    async def tenant(self, **options: Any) -> Tenant:
        number = next(_numbers)
        options.setdefault("models", [f"model-{number}"])
        created = await self.operator.create_tenant(f"tenant-{number}", **options)
        return Tenant(self, created)

    def client(self, api_key: str, options: ClientOptions = NO_RETRY) -> AsyncInferScale:
        return self._keep(AsyncInferScale(self.address, api_key, options))

    async def worker(
        self, model: str, worker_id: str = "", *, join: bool = True, **options: Any
    ) -> FakeWorker:
        worker_id = worker_id or f"worker-{next(_numbers)}"
        worker = FakeWorker(
            self.address, INTERNAL_TOKEN, model=model, worker_id=worker_id, **options
        )
        self._opened.append(worker)
        await worker.start()
        if join:
            await worker.join()
        return worker

    def _keep(self, opened: _T) -> _T:
        self._opened.append(opened)
        return opened


class Tenant:
    """A tenant, the client that its first key opens, and its first model."""

    def __init__(self, control: Control, created: CreatedTenant) -> None:
        self.control = control
        self.tenant_id = created.tenant.tenant_id
        self.api_key = created.api_key
        self.key_id = created.key_id
        self.model = created.tenant.models[0]
        self.client = control.client(created.api_key)

    async def encoded(self, user_id: str, memory_id: str) -> Memory:
        """The memory, once its encode job is done."""

        async def is_done() -> Memory | None:
            memory = await self.client.get_memory(user_id, memory_id)
            return memory if memory.is_encoded else None

        return await eventually(is_done)


async def eventually(ask: Callable[[], Awaitable[_T | None]], *, within_s: float = 10.0) -> _T:
    """The first answer that is true; asks every 20 ms."""
    async with asyncio.timeout(within_s):
        while not (answer := await ask()):
            await asyncio.sleep(0.02)
        return answer
