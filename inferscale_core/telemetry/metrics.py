"""Counters, histograms and gauges, each with labels from a small closed set.

A user's or a tenant's id is never a label: the number of series may not grow with the number of
users. So no function here takes a free mapping of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from inferscale_core.telemetry import names

Reader = Callable[[], int] | Callable[[], float]

_meter = metrics.get_meter("inferscale")

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bucket bounds: a warm first token takes about 20 ms on a GPU, a cold one on a CPU 30 s."""

NATS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Bucket bounds: rounding gives below 0.001, good recipes 0.03 to 0.1, facts encoded alone 0.7."""

_server_duration = _meter.create_histogram(
    names.RPC_SERVER_DURATION, "s", "Calls served", explicit_bucket_boundaries_advisory=SECONDS
)
_client_duration = _meter.create_histogram(
    names.RPC_CLIENT_DURATION, "s", "Calls made", explicit_bucket_boundaries_advisory=SECONDS
)
_server_active = _meter.create_up_down_counter(names.RPC_SERVER_ACTIVE, "{call}", "Calls open")
_lookups = _meter.create_counter(names.CACHE_LOOKUPS, "{lookup}", "Cache hits and misses")
_evictions = _meter.create_counter(names.CACHE_EVICTIONS, "{entry}", "Entries evicted")
_stage = _meter.create_histogram(
    names.CHAT_STAGE, "s", "Steps of a chat", explicit_bucket_boundaries_advisory=SECONDS
)
_tokens = _meter.create_counter(names.CHAT_TOKENS, "{token}", "Prompt tokens by way of serving")
_facts = _meter.create_counter(names.CHAT_FACTS, "{fact}", "Facts served by way of serving")
_shadow_kl = _meter.create_histogram(
    names.SHADOW_KL,
    "{nat}",
    "Divergence of a chat's first token from joint prefill",
    explicit_bucket_boundaries_advisory=NATS,
)
_shadow_checks = _meter.create_counter(names.SHADOW_CHECKS, "{check}", "Shadow checks by outcome")
_encoded = _meter.create_counter(names.ENCODED_CHUNKS, "{chunk}", "Chunks encoded or refused")


def call_started(method: str) -> None:
    """`method` is one that the server has; an unknown one is not counted."""
    _server_active.add(1, {names.RPC_METHOD: method})


def call_served(method: str, status: str, duration_s: float) -> None:
    """status: name of a gRPC status."""
    _server_active.add(-1, {names.RPC_METHOD: method})
    labels = {names.RPC_METHOD: method, names.RPC_STATUS: status}
    _server_duration.record(duration_s, labels)


def call_made(method: str, status: str, duration_s: float) -> None:
    labels = {names.RPC_METHOD: method, names.RPC_STATUS: status}
    _client_duration.record(duration_s, labels)


def chat_step(stage: str, duration_s: float) -> None:
    """stage: name of a span of `telemetry.names`, for example `names.INJECT`."""
    _stage.record(duration_s, {names.STAGE: stage})


def chat_served(
    *,
    tokens_by_serving: Mapping[str, int],
    facts_by_serving: Mapping[str, int],
) -> None:
    """Keys: `injected`, `native_hit`, `prefilled`."""
    for serving, count in tokens_by_serving.items():
        _tokens.add(count, {names.SERVING: serving})
    for serving, count in facts_by_serving.items():
        _facts.add(count, {names.SERVING: serving})


def min_injected_tokens(read: Reader) -> None:
    """Tokens of memory below which a chat is served as text; read as `CacheMetrics` reads."""
    _min_injected.read_from({}, read)


def chunk_encoded(outcome: str) -> None:
    """outcome: `done`, `resident`, `failed` or `dropped`."""
    _encoded.add(1, {names.OUTCOME: outcome})


class CacheMetrics:
    """Hits, misses, evictions, resident and pinned bytes of one named cache.

    `resident_bytes` and `pinned_bytes` are called when metrics are collected, from the collector's
    thread; they return a number and do nothing else. None: the cache has no such figure. A second
    cache of the same name takes the place of the first.
    """

    def __init__(
        self,
        cache: str,
        *,
        resident_bytes: Callable[[], int] | None = None,
        pinned_bytes: Callable[[], int] | None = None,
    ) -> None:
        self._labels = {names.CACHE: cache}
        _resident.read_from(self._labels, resident_bytes)
        _pinned.read_from(self._labels, pinned_bytes)

    def hit(self, count: int = 1) -> None:
        _lookups.add(count, {**self._labels, names.OUTCOME: "hit"})

    def miss(self, count: int = 1) -> None:
        _lookups.add(count, {**self._labels, names.OUTCOME: "miss"})

    def evicted(self, count: int = 1) -> None:
        _evictions.add(count, self._labels)


class ShadowMetrics:
    """What the shadow checks of one worker found. It serves one model by one recipe: two labels
    that tell workers of a model apart when they move from one recipe to the next."""

    def __init__(self, model: str, recipe: str) -> None:
        self._labels = {names.MODEL: model, names.RECIPE: recipe}

    def checked(self, kl: float, *, agrees: bool) -> None:
        _shadow_kl.record(kl, self._labels)
        outcome = "agreed" if agrees else "differed"
        _shadow_checks.add(1, {**self._labels, names.OUTCOME: outcome})

    def dropped(self, reason: str) -> None:
        """reason: `gave_way`, `crowded_out`, `too_old`, `forgotten` or `failed`."""
        _shadow_checks.add(1, {**self._labels, names.OUTCOME: reason})


class QueueMetrics:
    """Depth and age of the oldest entry of one named queue; read as `CacheMetrics` reads."""

    def __init__(
        self, queue: str, *, depth: Callable[[], int], oldest_age_s: Callable[[], float]
    ) -> None:
        labels = {names.QUEUE_NAME: queue}
        _depth.read_from(labels, depth)
        _age.read_from(labels, oldest_age_s)


def jobs_by_state(task: str, state: str, read: Reader) -> None:
    """Jobs of one task that are in this state; read as `CacheMetrics` reads."""
    _jobs.read_from({names.TASK: task, names.STATE: state}, read)


class _Gauge:
    """One instrument that is read from many places, one for each set of labels."""

    def __init__(self, name: str, unit: str, description: str) -> None:
        self._readers: dict[tuple[tuple[str, str], ...], Reader] = {}
        _meter.create_observable_gauge(name, [self._observe], unit, description)

    def read_from(self, labels: Mapping[str, str], read: Reader | None) -> None:
        if read is not None:
            self._readers[tuple(labels.items())] = read

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        observations = []
        for labels, read in list(self._readers.items()):
            with suppress(Exception):
                observations.append(Observation(read(), dict(labels)))
        return observations


_resident = _Gauge(names.CACHE_RESIDENT, "By", "Bytes held")
_pinned = _Gauge(names.CACHE_PINNED, "By", "Bytes being read")
_depth = _Gauge(names.QUEUE_DEPTH, "{entry}", "Entries waiting")
_age = _Gauge(names.QUEUE_AGE, "s", "Age of the oldest entry")
_jobs = _Gauge(names.QUEUE_JOBS, "{job}", "Jobs by task and state")
_min_injected = _Gauge(names.MIN_INJECTED_TOKENS, "{token}", "Memory below this is served as text")
