"""Tenants, users, facts and vectors with defaults."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from inferscale_core.ids import FactId, ModelRevision, RecipeHash, TenantId, UserId, WorkerId
from inferscale_core.memory.encoding import EncodeResult, EncodeState, EncodeTarget
from inferscale_core.memory.facts import Fact, FactRef, NewFact
from inferscale_core.memory.tenants import Quotas
from inferscale_core.memory.workers import EmbedderIdentity, Worker
from inferscale_core.store import Embedding, Store

MODEL = "tiny"
TARGET = EncodeTarget(MODEL, ModelRevision("tiny@1"), "progressive-32", RecipeHash("r1"))

_numbers = itertools.count(1)


def vector(*components: float, dimension: int = 8) -> Embedding:
    """Unit vector that starts with the components; without any, along the first axis."""
    full = np.zeros(dimension, dtype=np.float32)
    full[: max(1, len(components))] = components or (1.0,)
    return full / np.float32(np.linalg.norm(full))


async def a_tenant(
    store: Store, *, models: tuple[str, ...] = (MODEL,), quotas: Quotas | None = None
) -> TenantId:
    tenant_id = TenantId(f"tenant-{next(_numbers)}")
    async with store.transaction(tenant_id) as tx:
        await tx.tenants.create("A tenant", models, quotas)
    return tenant_id


def a_user() -> UserId:
    return UserId(f"user-{next(_numbers)}")


async def add_fact(
    store: Store,
    tenant_id: TenantId,
    user_id: UserId,
    text: str,
    embedding: Embedding | None = None,
) -> Fact:
    async with store.transaction(tenant_id) as tx:
        added = await tx.facts.add(
            user_id, NewFact(text), vector() if embedding is None else embedding
        )
    return added.fact


def a_worker(worker_id: str = "worker-0", *, instance_id: str = "i1", model: str = MODEL) -> Worker:
    return Worker(
        worker_id=WorkerId(worker_id),
        instance_id=instance_id,
        address="127.0.0.1:7710",
        model=model,
        model_revision=TARGET.model_revision,
        recipe=TARGET.recipe,
        recipe_hash=TARGET.recipe_hash,
        embedder=EmbedderIdentity("mini", "1", 8),
    )


def done(
    fact: Fact | FactRef, *prefix: Fact | FactRef, turn_ids: Sequence[str] = ()
) -> EncodeResult:
    """A chunk was stored whose prefix held these facts."""
    return EncodeResult(
        fact=_ref(fact),
        target=TARGET,
        state=EncodeState.DONE,
        chunk_digest=f"digest-{_ref(fact).fact_id}",
        num_tokens=12,
        prefix_facts=tuple(_ref(seen) for seen in prefix),
        prefix_turn_ids=tuple(turn_ids),  # type: ignore[arg-type]
    )


async def record(store: Store, tenant_id: TenantId, user_id: UserId, *results: EncodeResult) -> int:
    """Records the results as of now."""
    async with store.transaction(tenant_id) as tx:
        state = await tx.users.state(user_id)
        return await tx.encodings.record(user_id, results, kv_epoch=state.kv_epoch)


async def states_of(store: Store, tenant_id: TenantId, user_id: UserId, *facts: Fact) -> list[str]:
    """The state of each fact's only encode."""
    async with store.transaction(tenant_id) as tx:
        found = await tx.encodings.statuses(user_id, [fact.fact_id for fact in facts])
    states = []
    for fact in facts:
        [status] = found[FactId(fact.fact_id)]
        states.append(status.state.value)
    return states


def _ref(fact: Fact | FactRef) -> FactRef:
    return fact if isinstance(fact, FactRef) else fact.ref
