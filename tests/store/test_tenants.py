"""Tenants, their keys and quotas."""

from __future__ import annotations

import pytest

from inferscale_core.errors import InvalidInput, NotFound
from inferscale_core.ids import TenantId
from inferscale_core.memory.tenants import Quotas
from inferscale_core.store import Store
from tests.store.factories import a_tenant


async def test_a_tenant_reads_back_with_its_models_in_order(store: Store) -> None:
    tenant = await a_tenant(store, models=("b", "a"), quotas=Quotas(7, 3))
    async with store.transaction(tenant) as tx:
        read = await tx.tenants.get()
        changed = await tx.tenants.set_quotas(Quotas(9, 2))
    assert (read.models, read.quotas, read.num_facts) == (("b", "a"), Quotas(7, 3), 0)
    assert changed.quotas == Quotas(9, 2)


async def test_a_tenant_is_created_once(store: Store) -> None:
    tenant = await a_tenant(store)
    async with store.transaction(tenant) as tx:
        with pytest.raises(InvalidInput, match=tenant):
            await tx.tenants.create("Again", ("tiny",))


async def test_an_unknown_tenant_is_not_found(store: Store) -> None:
    async with store.transaction(TenantId("no-such-tenant")) as tx:
        with pytest.raises(NotFound):
            await tx.tenants.get()
        with pytest.raises(NotFound):
            await tx.tenants.set_quotas(Quotas())


async def test_a_key_finds_its_tenant_until_it_is_revoked(store: Store) -> None:
    tenant, other = await a_tenant(store), await a_tenant(store)
    async with store.transaction(tenant) as tx:
        key = await tx.api_keys.add("key-1", "laptop", "hash-1")
    async with store.transaction(other) as tx:
        await tx.api_keys.add("key-1", "", "hash-2")
    assert await store.authenticate("hash-1") == key
    assert key.tenant_id == tenant
    assert await store.authenticate("hash-3") is None
    async with store.transaction(tenant) as tx:
        revoked = await tx.api_keys.revoke("key-1")
        assert await tx.api_keys.revoke("key-1") == revoked
        assert await tx.api_keys.list() == [revoked]
    assert revoked.revoked_at is not None
    assert await store.authenticate("hash-1") is None
    found = await store.authenticate("hash-2")
    assert found is not None
    assert found.tenant_id == other


async def test_a_key_of_another_tenant_cannot_be_revoked(store: Store) -> None:
    tenant, other = await a_tenant(store), await a_tenant(store)
    async with store.transaction(tenant) as tx:
        await tx.api_keys.add("key-a", "", "hash-a")
    async with store.transaction(other) as tx:
        with pytest.raises(NotFound):
            await tx.api_keys.revoke("key-a")
    assert await store.authenticate("hash-a") is not None
