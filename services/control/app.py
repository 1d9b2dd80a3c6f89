"""The control service, wired: store, embedder, use cases, jobs and the gRPC server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from inferscale_core.embedding import Embedder
from inferscale_core.errors import Incompatible
from inferscale_core.ids import RecipeHash
from inferscale_core.memory.recipe_files import recipe_from_settings
from inferscale_core.memory.recipes import Recipe, Storage
from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.pb.inferscale.v1 import chat_pb2, memory_pb2, sync_pb2, tenant_pb2
from inferscale_core.rpc.pb.inferscale.v1.chat_pb2_grpc import add_ChatServiceServicer_to_server
from inferscale_core.rpc.pb.inferscale.v1.memory_pb2_grpc import (
    add_MemoryServiceServicer_to_server,
)
from inferscale_core.rpc.pb.inferscale.v1.sync_pb2_grpc import add_SyncServiceServicer_to_server
from inferscale_core.rpc.pb.inferscale.v1.tenant_pb2_grpc import (
    add_TenantServiceServicer_to_server,
)
from inferscale_core.rpc.server import RpcServer, ServerOptions
from inferscale_core.settings import (
    ControlSettings,
    DatabaseSettings,
    Settings,
    WrongSettings,
    missing,
    variable,
)
from inferscale_core.store import JobHandlers, JobQueue, QueueTimes, Store, url_problem
from inferscale_core.telemetry.logs import get_logger
from services.control.auth import ControlAuthenticator
from services.control.background import Background
from services.control.chat.servicer import ChatServicer
from services.control.chat.use_cases import ChatUseCases
from services.control.embedding_pool import EmbeddingPool
from services.control.encoding.depth import JobDepth
from services.control.encoding.forgetting import Forgetter
from services.control.encoding.use_cases import EncodeJobs, ForgetJobs
from services.control.memory.adding import AddUseCases
from services.control.memory.lengths import FactLengths
from services.control.memory.preparation import FactPreparation
from services.control.memory.reading import ReadUseCases
from services.control.memory.removing import RemoveUseCases
from services.control.memory.servicer import MemoryServicer
from services.control.memory.turns import TurnUseCases
from services.control.memory.use_cases import MemoryUseCases
from services.control.retention import Retention
from services.control.sync.servicer import SyncServicer
from services.control.sync.use_cases import SyncUseCases
from services.control.tenants.servicer import TenantServicer
from services.control.tenants.use_cases import TenantUseCases
from services.control.workers import WorkerChannels, WorkerDirectory
from services.tls import check_tls, own_credentials, peer_options

JOB_GRACE_S = 2.0
"""Time that running jobs have after the calls have ended. What is cut off runs again elsewhere, and
finds what it had done, so this is added to the grace of calls and kept short."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What every use case is built from. Owned by `ControlApp`."""

    store: Store
    pool: EmbeddingPool
    preparation: FactPreparation
    directory: WorkerDirectory
    channels: WorkerChannels
    forgetter: Forgetter
    background: Background


class ControlApp:
    """Built, started once, stopped once; all in one event loop.

    started   the database was checked, jobs run, gRPC answers and health says SERVING
    stopped   calls have ended, running jobs have ended or are back in the queue, nothing is open
    """

    def __init__(self, settings: Settings, embedder: Embedder) -> None:
        """Raises WrongSettings, or Incompatible for another embedder."""
        check_settings(settings)
        _check_embedder(settings, embedder)
        self._settings = settings.control
        self._tls = settings.tls
        self.parts = _parts(settings, embedder)
        self.server = _server(settings, self.parts)
        self._jobs = _job_queue(settings, self.parts)
        self._depth = JobDepth(self._jobs)
        self._retention = Retention(self.parts.store, settings.retention)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        """Returns the port. Raises Unsupported for a database that we refuse, or Unavailable."""
        await self.parts.store.check()
        self._tasks = [
            asyncio.create_task(self._jobs.run(), name="jobs"),
            asyncio.create_task(self._depth.watch(), name="job depth"),
            asyncio.create_task(self._retention.watch(), name="retention"),
        ]
        return await self.server.start(
            self._settings.listen, health_address=self._tls.health_listen
        )

    async def stop(self) -> None:
        """After the server has drained. Jobs that are cut off run again elsewhere."""
        if self._tasks:
            running, *watching = self._tasks
            for task in watching:
                task.cancel()
            self._jobs.stop()
            await running
        await self.parts.background.close()
        await self.parts.channels.close()
        await asyncio.to_thread(self.parts.pool.close)
        await self.parts.store.close()
        _log.info("control.stopped")


def check_settings(settings: Settings) -> None:
    """Before anything slow is loaded. Raises WrongSettings that names all that is."""
    database = settings.database
    problems = missing(settings, ("control", "internal_token"))
    if database.url is None and database.embedded_dir is None:
        problems.append(f"{variable('database', 'url')} must be set")
    for field, url in (("url", database.url), ("listen_url", database.listen_url)):
        problem = url_problem(url.get_secret_value()) if url is not None else None
        if problem:
            problems.append(f"{variable('database', field)} {problem}")
    if problems:
        raise WrongSettings(*problems)
    check_tls(settings.tls)
    recipe_from_settings(settings.recipe)


def _check_embedder(settings: Settings, embedder: Embedder) -> None:
    if embedder.identity.dimension != settings.embedder.dimension:
        raise Incompatible(
            f"the embedder gives {embedder.identity.dimension} dimensions,"
            f" the settings say {settings.embedder.dimension} (embedder.dimension)"
        )


def _parts(settings: Settings, embedder: Embedder) -> Parts:
    store = _store(settings.database, embedder.identity.dimension)
    pool = EmbeddingPool(embedder, threads=settings.embedder.threads)
    recipe = recipe_from_settings(settings.recipe)
    directory = WorkerDirectory(
        store,
        lease_s=settings.control.lease_s,
        recipe_hashes=_hashes(recipe, settings.recipe.storage),
    )
    channels = WorkerChannels(
        settings.control.internal_token.get_secret_value(), peer_options(settings.tls)
    )
    return Parts(
        store=store,
        pool=pool,
        preparation=FactPreparation(pool, recipe, FactLengths(directory, channels, recipe)),
        directory=directory,
        channels=channels,
        forgetter=Forgetter(directory, channels),
        background=Background(),
    )


def _hashes(recipe: Recipe, storage: str | None) -> set[RecipeHash]:
    """Of the recipe in each storage that workers may give it; in one, where control is told it."""
    storages = [Storage(storage)] if storage is not None else list(Storage)
    return {replace(recipe, storage=one).hash for one in storages}


def _store(settings: DatabaseSettings, dimension: int) -> Store:
    assert settings.url is not None, "checked before"
    return Store(
        settings.url.get_secret_value(),
        embedding_dimension=dimension,
        pool_size=settings.pool_size,
        pool_timeout_s=settings.pool_timeout_s,
    )


def _server(settings: Settings, parts: Parts) -> RpcServer:
    control = settings.control
    options = ServerOptions(
        min_ping_interval_s=control.min_ping_interval_s, credentials=own_credentials(settings.tls)
    )
    server = RpcServer(ControlAuthenticator(_tokens(control), parts.store), options)
    server.add(
        memory_pb2.DESCRIPTOR,
        add_MemoryServiceServicer_to_server,
        MemoryServicer(_memory(control, parts)),
    )
    chats = ChatUseCases(parts.store, parts.directory, parts.channels, parts.background)
    server.add(chat_pb2.DESCRIPTOR, add_ChatServiceServicer_to_server, ChatServicer(chats))
    server.add(
        tenant_pb2.DESCRIPTOR,
        add_TenantServiceServicer_to_server,
        TenantServicer(TenantUseCases(parts.store)),
    )
    sync = SyncUseCases(parts.store, parts.directory, parts.pool.identity)
    server.add(
        sync_pb2.DESCRIPTOR,
        add_SyncServiceServicer_to_server,
        SyncServicer(sync, lease_s=control.lease_s),
    )
    return server


def _tokens(control: ControlSettings) -> SharedTokens:
    return SharedTokens(
        internal=control.internal_token.get_secret_value(),
        operator=control.operator_token.get_secret_value(),
    )


def _memory(control: ControlSettings, parts: Parts) -> MemoryUseCases:
    store, preparation, directory = parts.store, parts.preparation, parts.directory
    return MemoryUseCases(
        reads=ReadUseCases(store, preparation, directory, parts.channels),
        adds=AddUseCases(store, preparation),
        removals=RemoveUseCases(store, preparation, parts.forgetter, wait_s=control.delete_wait_s),
        turns=TurnUseCases(store),
    )


def _job_queue(settings: Settings, parts: Parts) -> JobQueue:
    encoding = EncodeJobs(parts.store, parts.directory, parts.channels)
    forgetting = ForgetJobs(parts.store, parts.forgetter)
    listen_url = settings.database.listen_url
    return JobQueue(
        parts.store,
        JobHandlers(encode=encoding.encode, forget=forgetting.forget),
        concurrency=settings.control.job_concurrency,
        listen_url=listen_url.get_secret_value() if listen_url else None,
        times=QueueTimes(grace=JOB_GRACE_S),
    )
