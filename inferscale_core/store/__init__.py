"""Postgres: the only source of truth for tenants, facts and turns, and the queue of encode jobs.

Start with `Store`: `transaction(tenant_id)` gives the repositories of one tenant, which return
domain objects and never commit. Use cases put one change, its audit row and its job in one
transaction:

    async with store.transaction(tenant_id) as tx:
        earlier = await tx.requests.claim(request_id, "add_memory", content_hash(...))
        if earlier is None:
            added = await tx.facts.add(user_id, new_fact, embedding)
            state = await tx.users.state(user_id)
            await tx.audit.record(actor, "add_memory", user_id=user_id, request_id=request_id)
            await tx.requests.complete(request_id, RequestOutcome(...))
            await tx.queue_encoding(user_id)
"""

from inferscale_core.store.audit import AuditEntry, AuditLog
from inferscale_core.store.changes import ChangeReader
from inferscale_core.store.checks import Embedding
from inferscale_core.store.database import Store
from inferscale_core.store.deletions import DeletionRepository
from inferscale_core.store.disk_keys import DiskKeyRepository
from inferscale_core.store.embedded import EmbeddedPostgres, service_url
from inferscale_core.store.encodings import EncodingRepository
from inferscale_core.store.facts import FactRepository
from inferscale_core.store.history import EndedHistory
from inferscale_core.store.holders import HolderRepository
from inferscale_core.store.identifiers import content_hash, new_id
from inferscale_core.store.jobs import JobHandlers, JobQueue, QueueTimes
from inferscale_core.store.queueing import EncodeJob, ForgetJob, JobState, QueueDepth
from inferscale_core.store.requests import RequestLog, RequestOutcome
from inferscale_core.store.tenants import ApiKeyRepository, TenantRepository
from inferscale_core.store.transaction import SystemTransaction, TenantTransaction
from inferscale_core.store.turns import TurnRepository
from inferscale_core.store.urls import url_problem
from inferscale_core.store.users import UserRepository
from inferscale_core.store.workers import WorkerRegistry

__all__ = [
    "ApiKeyRepository",
    "AuditEntry",
    "AuditLog",
    "ChangeReader",
    "DeletionRepository",
    "DiskKeyRepository",
    "EmbeddedPostgres",
    "Embedding",
    "EncodeJob",
    "EncodingRepository",
    "EndedHistory",
    "FactRepository",
    "ForgetJob",
    "HolderRepository",
    "JobHandlers",
    "JobQueue",
    "JobState",
    "QueueDepth",
    "QueueTimes",
    "RequestLog",
    "RequestOutcome",
    "Store",
    "SystemTransaction",
    "TenantRepository",
    "TenantTransaction",
    "TurnRepository",
    "UserRepository",
    "WorkerRegistry",
    "content_hash",
    "new_id",
    "service_url",
    "url_problem",
]
