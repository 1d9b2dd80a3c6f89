"""Names of spans, attributes and metrics. A name never holds an id; ids are attribute values.

Attributes that begin with `inferscale.` are ours, the others are OpenTelemetry's own
(Source: semantic conventions 1.40, rpc and error).
"""

from __future__ import annotations

# Attributes of spans.
ERROR_TYPE = "error.type"
RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"

TENANT_ID = "inferscale.tenant.id"
USER_ID = "inferscale.user.id"
FACT_ID = "inferscale.fact.id"
WORKER_ID = "inferscale.worker.id"

FACT_COUNT = "inferscale.facts.count"
CHUNK_COUNT = "inferscale.chunks.count"
WAVE = "inferscale.encode.wave"
TOKEN_COUNT = "inferscale.tokens.count"
TOKENS_INJECTED = "inferscale.tokens.injected"
TOKENS_NATIVE_HIT = "inferscale.tokens.native_hit"
TOKENS_PREFILLED = "inferscale.tokens.prefilled"
ATTEMPT = "inferscale.client.attempt"

# Spans: one for each step that an operator would name.
ADD_MEMORY = "memory.add"
UPDATE_MEMORY = "memory.update"
DELETE_MEMORY = "memory.delete"
SEARCH_MEMORIES = "memory.search"
SYNC = "sync"
EMBED = "embed"
RETRIEVE = "retrieve"
PLAN = "plan"
QUEUE = "queue"
INJECT = "inject"
PREFILL = "prefill"
ENCODE = "encode"
ENCODE_WAVE = "encode.wave"
FORGET = "forget"

# Metrics.
RPC_SERVER_DURATION = "rpc.server.call.duration"
RPC_CLIENT_DURATION = "rpc.client.call.duration"
RPC_SERVER_ACTIVE = "inferscale.rpc.server.active"
CACHE_LOOKUPS = "inferscale.cache.lookups"
CACHE_EVICTIONS = "inferscale.cache.evictions"
CACHE_RESIDENT = "inferscale.cache.resident"
CACHE_PINNED = "inferscale.cache.pinned"
QUEUE_DEPTH = "inferscale.queue.depth"
QUEUE_AGE = "inferscale.queue.age"
QUEUE_JOBS = "inferscale.queue.jobs"
CHAT_STAGE = "inferscale.chat.stage.duration"
CHAT_TOKENS = "inferscale.chat.prompt_tokens"
CHAT_FACTS = "inferscale.chat.facts"
MIN_INJECTED_TOKENS = "inferscale.chat.min_injected_tokens"
ENCODED_CHUNKS = "inferscale.encode.chunks"
SHADOW_CHECKS = "inferscale.shadow.checks"
SHADOW_KL = "inferscale.shadow.kl"

# Labels of metrics: each has a small, closed set of values.
CACHE = "inferscale.cache"
MODEL = "inferscale.model"
OUTCOME = "inferscale.outcome"
QUEUE_NAME = "inferscale.queue"
RECIPE = "inferscale.recipe"
STAGE = "inferscale.stage"
SERVING = "inferscale.serving"
STATE = "inferscale.state"
TASK = "inferscale.task"
