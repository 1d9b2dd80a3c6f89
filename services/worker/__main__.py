"""`python -m services.worker`: serve one model until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from typing import Any

from inferscale_core.errors import InferScaleError
from inferscale_core.memory.recipe_files import recipe_from_settings
from inferscale_core.rpc.auth import SharedTokens
from inferscale_core.rpc.channel import open_channel
from inferscale_core.rpc.pb.inferscale.v1 import worker_pb2
from inferscale_core.rpc.pb.inferscale.v1.worker_pb2_grpc import (
    add_WorkerServiceServicer_to_server,
)
from inferscale_core.rpc.server import RpcServer, ServerOptions
from inferscale_core.settings import Settings, WrongSettings, missing, read_settings
from inferscale_core.telemetry.logs import get_logger
from inferscale_core.telemetry.setup import start_telemetry
from services.tls import check_tls, own_credentials, peer_options
from services.worker.app import (
    build_parts,
    load_text_parts,
    make_identity,
    open_disk,
    prepare,
    running_engine,
    search_device,
)
from services.worker.engine.host import EngineHost
from services.worker.servicer import WorkerServicer
from services.worker.sync import ControlLink, Lease
from services.worker.turns import prompt_turns

_log = get_logger("services.worker")

TERMINATED = 128 + signal.SIGTERM
DRAIN_NOTICE_S = 0.5
"""Between saying that we drain and the last new call: calls already on their way still arrive."""


async def serve(settings: Settings) -> None:
    """Returns after an orderly end; raises when the worker cannot start or its engine dies."""
    token = settings.worker.internal_token.get_secret_value()
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_engine(settings))
        embedder, recipe, prompt_format = await load_text_parts(settings, running.model)
        to_control = open_channel(settings.worker.control, token, peer_options(settings.tls))
        channel = await stack.enter_async_context(to_control)
        disk_secret = await open_disk(settings, running, recipe)
        link = ControlLink(channel, with_disk_keys=disk_secret is not None)
        parts = build_parts(
            settings.worker,
            running.host,
            running.model,
            recipe,
            prompt_format,
            embedder,
            link,
            running.mirror,
            running.reports,
            device=search_device(settings.embedder),
            disk_secret=disk_secret,
        )
        await prepare(settings.worker, parts)
        identity = make_identity(settings.worker, running.model, parts.rules, embedder)
        options = ServerOptions(credentials=own_credentials(settings.tls))
        server = RpcServer(SharedTokens(internal=token), options)
        server.add(
            worker_pb2.DESCRIPTOR,
            add_WorkerServiceServicer_to_server,
            WorkerServicer(
                identity,
                parts.encode,
                parts.generate,
                parts.forget,
                parts.cache,
                parts.lengths,
                parts.activity,
            ),
        )
        await stack.enter_async_context(parts.shadow.running())
        await stack.enter_async_context(prompt_turns(parts.activity))
        await server.start(
            settings.worker.listen, ready=False, health_address=settings.tls.health_listen
        )
        lease = Lease(link, identity.to_join_request())
        await serve_until_end(server, lease, running.host, settings.worker.grace_s)


async def serve_until_end(
    server: RpcServer, lease: Lease, engine: EngineHost, grace_s: float
) -> None:
    """Ready once control has answered; drains at SIGTERM or SIGINT.

    Raises what control refuses us with, and Unavailable when the engine has died.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    fatal: list[asyncio.Task[Any]] = [
        asyncio.create_task(lease.keep()),
        asyncio.create_task(engine.watch()),
    ]
    signalled = asyncio.create_task(stopping.wait())
    tasks = [*fatal, signalled, asyncio.create_task(_ready_when_joined(server, lease))]
    try:
        await asyncio.wait({*fatal, signalled}, return_when=asyncio.FIRST_COMPLETED)
        for task in fatal:
            if task.done():
                await server.drain(0.0)
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await lease.announce_draining()
    await server.drain(grace_s, notice_s=DRAIN_NOTICE_S)


async def _ready_when_joined(server: RpcServer, lease: Lease) -> None:
    await lease.joined.wait()
    await server.set_ready(True)


def check_settings(settings: Settings) -> None:
    """Before anything slow is loaded. Raises WrongSettings."""
    if problems := missing(settings, ("worker", "internal_token"), ("worker", "worker_id")):
        raise WrongSettings(*problems)
    check_tls(settings.tls)
    recipe_from_settings(settings.recipe)


def main() -> int:
    # While the engine starts, SIGTERM unwinds like any exit, so that its processes end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        settings = read_settings()
        check_settings(settings)
        return run(settings)
    except WrongSettings as exc:
        return exc.report("inferscale worker")


def run(settings: Settings) -> int:
    telemetry = start_telemetry(
        settings.telemetry, service="inferscale-worker", instance=settings.worker.worker_id
    )
    try:
        asyncio.run(serve(settings))
    except InferScaleError as exc:
        _log.error("worker.stopped", exc=exc)
        print(f"inferscale worker: {exc}", file=sys.stderr)
        return 1
    finally:
        telemetry.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
