"""The worker's parts, put together and taken apart in order."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from inferscale_core.embedding import DeviceEmbedder, Embedder, load_embedder
from inferscale_core.errors import Unsupported
from inferscale_core.ids import WorkerId
from inferscale_core.kv.disk_secret import StoreSecret
from inferscale_core.kv.key_means import KeyMeans
from inferscale_core.memory.canonical import header_key
from inferscale_core.memory.recipe_files import recipe_from_settings
from inferscale_core.memory.recipes import Recipe
from inferscale_core.prompt import PromptFormat
from inferscale_core.retrieval import ChunkRules, SearchDevice
from inferscale_core.settings import EmbedderSettings, Settings, WorkerSettings
from inferscale_core.telemetry.metrics import CacheMetrics, QueueMetrics, ShadowMetrics
from services.worker.activity import Activity
from services.worker.break_even import BreakEven
from services.worker.cache_status import CacheReport
from services.worker.disk import EngineDisk
from services.worker.encoding.chunk import ChunkEncoder
from services.worker.encoding.user import EncodeUser
from services.worker.engine.arena_bytes import arena_bytes
from services.worker.engine.event_reader import EventReader
from services.worker.engine.host import EngineHost, engine_version
from services.worker.engine.mirror import DirectoryMirror
from services.worker.engine.model_files import ModelFiles, find_model, load_tokenizer
from services.worker.engine.protocol import Engine
from services.worker.engine.reports import Reports
from services.worker.forget import Forget
from services.worker.generate import Generate
from services.worker.header import HeaderChunk
from services.worker.identity import WorkerIdentity
from services.worker.lengths import FactLengths
from services.worker.open_chats import OpenChats
from services.worker.planner import Planner
from services.worker.salts import CacheSalts
from services.worker.shadow.checks import ShadowChecks
from services.worker.users import ChangeSource, UserCache, new_snapshot_factory
from services.worker.verdict import require_verdict


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What the servicer needs, and what tests look into."""

    header: HeaderChunk
    users: UserCache
    encode: EncodeUser
    generate: Generate
    forget: Forget
    lengths: FactLengths
    break_even: BreakEven
    cache: CacheReport
    rules: ChunkRules
    mirror: DirectoryMirror
    activity: Activity
    shadow: ShadowChecks


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """The engine with the socket of its events."""

    host: EngineHost
    model: ModelFiles
    mirror: DirectoryMirror
    reports: Reports


@asynccontextmanager
async def running_engine(
    settings: Settings, key_means: KeyMeans | None = None
) -> AsyncIterator[RunningEngine]:
    """Start the engine; stop it at the end.

    key_means: what a quantised storage leaves out; None means those of a required verdict, if any.
    Raises Unsupported by name for what we refuse, and when a required verdict is not there;
    WrongSettings, before a model is fetched, for a share of memory that cannot be had.
    """
    arena_bytes(settings.engine)
    model = await asyncio.to_thread(find_model, settings.engine)
    recipe = recipe_from_settings(settings.recipe)
    storage = recipe.storage
    if settings.engine.verdict is not None:
        path = Path(settings.engine.verdict).expanduser()
        verdict = require_verdict(path, model.revision, engine_version(), recipe)
        key_means = key_means or verdict.means
    model = model.stored_as(storage, key_means)
    mirror = DirectoryMirror(CacheMetrics("chunks"))
    reports = Reports()
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(EventReader(mirror, reports))
        host = await EngineHost.start(settings.engine, model, reader.endpoint, storage, key_means)
        stack.callback(host.stop)
        yield RunningEngine(host, model, mirror, reports)


async def open_disk(
    settings: Settings, running: RunningEngine, recipe: Recipe
) -> StoreSecret | None:
    """The engine's disk tier, if there is to be one. Raises Unavailable when it cannot be had."""
    if settings.engine.disk_dir is None:
        return None
    secret = StoreSecret.from_token(settings.worker.internal_token.get_secret_value())
    await running.host.open_disk(secret, running.model.revision, recipe.hash)
    return secret


def build_parts(
    settings: WorkerSettings,
    engine: Engine,
    model: ModelFiles,
    recipe: Recipe,
    prompt_format: PromptFormat,
    embedder: DeviceEmbedder,
    source: ChangeSource,
    mirror: DirectoryMirror,
    reports: Reports,
    *,
    device: torch.device,
    disk_secret: StoreSecret | None = None,
) -> WorkerParts:
    """Wire the use cases; starts nothing. disk_secret: None without a disk tier."""
    header_ids = prompt_format.header_ids
    disk = None
    if disk_secret is not None:
        disk = EngineDisk(engine, reports, disk_secret, header_ids[:1])
    rules = ChunkRules(
        model_revision=model.revision,
        recipe=recipe,
        header_key=header_key(model.revision, recipe.hash, header_ids),
        header_tokens=len(header_ids),
        max_prompt_tokens=engine.max_model_len - 1,
    )
    if len(header_ids) >= rules.max_prompt_tokens:
        raise Unsupported(
            f"a context of {engine.max_model_len} tokens has no room beside "
            f"the {len(header_ids)} of recipe {recipe.name!r}'s header"
        )
    # On the CPU, rows are where they are searched already.
    search = SearchDevice(device, 0 if device.type == "cpu" else settings.search_bytes)
    CacheMetrics("vectors", resident_bytes=lambda: search.resident_bytes)
    users = UserCache(
        source,
        prompt_format,
        new_snapshot_factory(rules, embedder.identity.dimension, search),
        settings.max_users_cached,
        keep_turns=recipe.num_turns > 0,
        metrics=CacheMetrics("users"),
        disk=disk,
    )
    header = HeaderChunk(rules.header_key, header_ids, engine, reports, mirror)
    activity = Activity()
    shadow_metrics = ShadowMetrics(model.served_name, recipe.name)
    shadow = ShadowChecks(engine, users, activity, shadow_metrics, settings.shadow_share)
    open_chats = OpenChats()
    forget = Forget(users, engine, reports, mirror, header_ids[:1], shadow, open_chats)
    encoder = ChunkEncoder(engine, reports, mirror, rules, header_ids, settings.encode_batch)
    break_even = BreakEven(engine, reports, header_ids, settings.min_injected_tokens or 0)
    planner = Planner(embedder, prompt_format, rules, mirror)
    salts = CacheSalts(model.revision, recipe.hash)
    cache = CacheReport(mirror, users, engine.arena, break_even)
    chunk_metrics = CacheMetrics(
        "chunks", resident_bytes=cache.resident_bytes, pinned_bytes=cache.pinned_bytes
    )
    QueueMetrics("encode", depth=encoder.num_waiting, oldest_age_s=encoder.oldest_wait_s)
    return WorkerParts(
        header=header,
        users=users,
        encode=EncodeUser(users, encoder, header, forget, mirror, engine.arena),
        generate=Generate(
            users,
            planner,
            engine,
            reports,
            mirror,
            salts,
            break_even,
            chunk_metrics,
            shadow,
            open_chats,
        ),
        forget=forget,
        lengths=FactLengths(prompt_format, rules),
        break_even=break_even,
        cache=cache,
        rules=rules,
        mirror=mirror,
        activity=activity,
        shadow=shadow,
    )


async def prepare(settings: WorkerSettings, parts: WorkerParts) -> None:
    """What the engine does before the first call: the header's chunk, and on a GPU, unless it is
    set, how much memory is worth injecting. Takes up to 2 s."""
    await parts.header.ensure()
    if settings.min_injected_tokens is None and torch.cuda.is_available():
        await parts.break_even.measure()


async def load_text_parts(
    settings: Settings, model: ModelFiles
) -> tuple[DeviceEmbedder, Recipe, PromptFormat]:
    """The embedder and the prompt format. Raises Unsupported when the embedder is another."""
    recipe = recipe_from_settings(settings.recipe)
    embedder = await asyncio.to_thread(load_embedder, settings.embedder)
    tokenizer = await asyncio.to_thread(load_tokenizer, model)
    return embedder, recipe, PromptFormat(tokenizer, recipe)


def make_identity(
    settings: WorkerSettings, model: ModelFiles, rules: ChunkRules, embedder: Embedder
) -> WorkerIdentity:
    return WorkerIdentity(
        worker_id=WorkerId(settings.worker_id),
        instance_id=uuid.uuid4().hex,
        address=settings.advertise or settings.listen,
        model=model.served_name,
        model_revision=model.revision,
        recipe=rules.recipe,
        embedder=embedder.identity,
        max_fact_tokens=rules.max_fact_tokens,
    )


def search_device(settings: EmbedderSettings) -> torch.device:
    """Where users' vectors are searched: beside the embedder."""
    if settings.device != "auto":
        return torch.device(settings.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
