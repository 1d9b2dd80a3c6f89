"""`python -m services.control`: the control service, until SIGTERM."""

from __future__ import annotations

import asyncio
import socket
import sys

from inferscale_core.embedding import load_embedder
from inferscale_core.errors import InferScaleError
from inferscale_core.rpc.server import serve_until_signal
from inferscale_core.settings import Settings, WrongSettings, read_settings
from inferscale_core.telemetry.setup import start_telemetry
from services.control.app import ControlApp, check_settings
from services.control.embedded import with_database


def main() -> int:
    try:
        settings = read_settings()
        check_settings(settings)
        return run(settings)
    except WrongSettings as exc:
        return exc.report("inferscale control")


def run(settings: Settings) -> int:
    telemetry = start_telemetry(
        settings.telemetry, service="inferscale-control", instance=socket.gethostname()
    )
    try:
        with with_database(settings) as complete:
            asyncio.run(serve(complete))
    except InferScaleError as exc:
        print(f"{exc.code}: {exc}", file=sys.stderr)
        return 1
    finally:
        telemetry.stop()
    return 0


async def serve(settings: Settings) -> None:
    app = ControlApp(settings, load_embedder(settings.embedder))
    try:
        await app.start()
        await serve_until_signal(app.server, settings.control.grace_s)
    finally:
        await app.stop()


if __name__ == "__main__":
    sys.exit(main())
