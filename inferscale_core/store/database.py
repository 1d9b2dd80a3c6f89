"""The connection pool, and transactions that see one tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import URL, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from inferscale_core.errors import Unsupported
from inferscale_core.ids import TenantId
from inferscale_core.memory.tenants import ApiKey
from inferscale_core.store.failures import translated
from inferscale_core.store.rows import Base
from inferscale_core.store.transaction import SystemTransaction, TenantTransaction

REQUIRED_SCHEMA = "20261130_0050"
"""The oldest schema that this code runs on. Newer ones have only added to it."""

# All of it is local to the transaction, so it also holds through a pooler that gives the next
# transaction another connection. A wait for a lock is bounded by the slowest honest writer of the
# same user; a statement by the largest batch. Times are read in UTC whatever the server is set to,
# since a recipe writes the day of `occurred_at`.
_BEGIN = text(
    """
    SELECT set_config('inferscale.tenant_id', :tenant_id, true),
        set_config('TimeZone', 'UTC', true),
        set_config('lock_timeout', '10s', true),
        set_config('statement_timeout', '30s', true),
        set_config('idle_in_transaction_session_timeout', '60s', true)
    """
)
_SNAPSHOT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
_FIND_API_KEY = text(
    "SELECT tenant_id, key_id, label, created_at FROM inferscale_find_api_key(:secret_hash)"
)


class Store:
    """One pool of connections for a process. Safe to share between tasks of one event loop.

    A connection that died is noticed before it is lent, so the call after a database restart works.
    Every error that leaves a transaction is of the tree in `errors.py`: Unavailable when trying
    again may help, StoreError otherwise.
    """

    def __init__(
        self,
        url: str | URL,
        *,
        embedding_dimension: int,
        pool_size: int = 10,
        pool_timeout_s: float = 10.0,
    ) -> None:
        """`url` is an SQLAlchemy URL of the role that owns no table. Connects on first use."""
        self.url = make_url(url)
        self.embedding_dimension = embedding_dimension
        self._engine = create_async_engine(
            self.url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=pool_timeout_s,
            pool_pre_ping=True,
            # Statements hold text of facts: an error must not repeat them.
            hide_parameters=True,
            # Prepared statements belong to a connection, which a pooler changes under us.
            connect_args={
                "prepare_threshold": None,
                "connect_timeout": max(2, int(pool_timeout_s)),
            },
        )

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def transaction(self, tenant_id: TenantId) -> AsyncIterator[TenantTransaction]:
        """Commits at the end, rolls back on any exception."""
        async with self._session(tenant_id) as session:
            yield TenantTransaction(session, tenant_id, self.embedding_dimension)

    @asynccontextmanager
    async def snapshot(self, tenant_id: TenantId) -> AsyncIterator[TenantTransaction]:
        """Reads only, and all reads see the same moment."""
        async with self._session(tenant_id, snapshot=True) as session:
            yield TenantTransaction(session, tenant_id, self.embedding_dimension)

    @asynccontextmanager
    async def system(self) -> AsyncIterator[SystemTransaction]:
        """For what belongs to no tenant."""
        async with self._session(TenantId("")) as session:
            yield SystemTransaction(session)

    async def authenticate(self, secret_hash: str) -> ApiKey | None:
        """The live key with this SHA-256 (hex), whosever it is. None: unknown or revoked."""
        async with self._session(TenantId("")) as session:
            row = (await session.execute(_FIND_API_KEY, {"secret_hash": secret_hash})).one_or_none()
        if row is None:
            return None
        return ApiKey(row.key_id, TenantId(row.tenant_id), row.label, row.created_at)

    async def check(self) -> None:
        """Refuses to start on a database where row security or vectors would not hold.

        Raises Unsupported that says what is wrong, or Unavailable.
        """
        async with self._session(TenantId("")) as session:
            await _check_schema(session)
            await _check_role(session)
            await _check_dimension(session, self.embedding_dimension)

    @asynccontextmanager
    async def _session(
        self, tenant_id: TenantId, *, snapshot: bool = False
    ) -> AsyncIterator[AsyncSession]:
        with translated():
            async with (
                AsyncSession(
                    self._engine,
                    autoflush=False,
                    expire_on_commit=False,
                    execution_options={"populate_existing": True, "synchronize_session": False},
                ) as session,
                session.begin(),
            ):
                if snapshot:
                    await session.execute(_SNAPSHOT)
                await session.execute(_BEGIN, {"tenant_id": tenant_id})
                yield session


async def _check_schema(session: AsyncSession) -> None:
    exists = await session.scalar(text("SELECT to_regclass('public.alembic_version')"))
    found = exists and await session.scalar(text("SELECT version_num FROM alembic_version"))
    if not found or found < REQUIRED_SCHEMA:
        raise Unsupported(
            f"the database schema is at {found or 'nothing'}, {REQUIRED_SCHEMA} is needed:"
            " run `python -m migrations upgrade`"
        )


async def _check_role(session: AsyncSession) -> None:
    role, is_strong, is_owner = (
        await session.execute(
            text(
                """
                SELECT current_user, rolsuper OR rolbypassrls,
                    (SELECT pg_has_role(current_user, c.relowner, 'MEMBER')
                     FROM pg_class c WHERE c.oid = 'public.facts'::regclass)
                FROM pg_roles WHERE rolname = current_user
                """
            )
        )
    ).one()
    if is_strong or is_owner:
        what = "bypasses row security" if is_strong else "owns the tables"
        raise Unsupported(f"role {role!r} {what}: give the services a role of their own")
    forced = set(
        await session.scalars(
            text(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relrowsecurity AND relforcerowsecurity"
            )
        )
    )
    for table in Base.metadata.sorted_tables:
        if table.info["is_tenant_table"] and table.name not in forced:
            raise Unsupported(f"row security is not forced on table {table.name!r}")


async def _check_dimension(session: AsyncSession, wanted: int) -> None:
    actual = await session.scalar(
        text(
            "SELECT atttypmod FROM pg_attribute"
            " WHERE attrelid = 'public.fact_embeddings'::regclass AND attname = 'embedding'"
        )
    )
    if actual != wanted:
        raise Unsupported(
            f"the database holds embeddings of {actual} dimensions,"
            f" but the embedder gives {wanted} (embedder.dimension)"
        )
