"""A user's memory version, KV epoch and number of facts: one row orders a user's writes."""

from __future__ import annotations

from sqlalchemy import func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.errors import NotFound, QuotaExceeded
from inferscale_core.ids import TenantId, UserId
from inferscale_core.memory.changes import UserState
from inferscale_core.store.rows import TenantRow, UserRow

_RESERVE = text(
    """
    WITH granted AS (
        SELECT tenant_id, greatest(0, least(
            :wanted, max_facts - num_facts, max_facts_per_user - :held)) AS count
        FROM tenants WHERE tenant_id = :tenant_id
        FOR NO KEY UPDATE
    )
    UPDATE tenants t SET num_facts = t.num_facts + g.count
    FROM granted g WHERE t.tenant_id = g.tenant_id
    RETURNING g.count AS granted, t.max_facts, t.max_facts_per_user
    """
)


class UserRepository:
    def __init__(self, session: AsyncSession, tenant_id: TenantId) -> None:
        self._session = session
        self._tenant_id = tenant_id

    async def state(self, user_id: UserId) -> UserState:
        """`UserState(0, 0)` for a user whom nobody has written yet."""
        row = (
            await self._session.execute(
                select(UserRow.memory_version, UserRow.kv_epoch).where(
                    UserRow.tenant_id == self._tenant_id, UserRow.user_id == user_id
                )
            )
        ).one_or_none()
        return UserState(*row) if row else UserState()

    async def num_facts(self, user_id: UserId) -> int:
        """Live facts of the user, from its counter."""
        found = await self._session.scalar(
            select(UserRow.num_facts).where(
                UserRow.tenant_id == self._tenant_id, UserRow.user_id == user_id
            )
        )
        return found or 0

    async def lock(self, user_id: UserId) -> LockedUser:
        """Waits for other writers of this user, and makes the user if it is new.

        The lock ends with the transaction. Raises NotFound when the tenant does not exist.
        """
        row = await self._locked_row(user_id)
        if row is None:
            await self._create(user_id)
            row = await self._locked_row(user_id)
            assert row is not None, "just inserted, or by the transaction we waited for"
        return LockedUser(self._session, self._tenant_id, user_id, UserState(*row[:2]), row[2])

    async def hold_writers(self, user_id: UserId) -> None:
        """Waits for the user's writers and holds off others until the transaction ends."""
        await self._session.execute(
            select(UserRow.user_id)
            .where(UserRow.tenant_id == self._tenant_id, UserRow.user_id == user_id)
            .with_for_update(read=True)
        )

    async def _locked_row(self, user_id: UserId) -> tuple[int, int, int] | None:
        row = (
            await self._session.execute(
                select(UserRow.memory_version, UserRow.kv_epoch, UserRow.num_facts)
                .where(UserRow.tenant_id == self._tenant_id, UserRow.user_id == user_id)
                .with_for_update(key_share=True)
            )
        ).one_or_none()
        return (row[0], row[1], row[2]) if row else None

    async def _create(self, user_id: UserId) -> None:
        tenant = select(TenantRow.tenant_id).where(TenantRow.tenant_id == self._tenant_id)
        if (await self._session.execute(tenant)).one_or_none() is None:
            raise NotFound("tenant", self._tenant_id)
        await self._session.execute(
            insert(UserRow)
            .values(tenant_id=self._tenant_id, user_id=user_id, created_at=func.now())
            .on_conflict_do_nothing()
        )


class LockedUser:
    """A user's row while its transaction holds it. `save` writes what was counted.

    Locks are always taken in this order: the request id, the user, the tenant's counter. So two
    transactions never wait for each other.
    """

    def __init__(
        self,
        session: AsyncSession,
        tenant_id: TenantId,
        user_id: UserId,
        state: UserState,
        num_facts: int,
    ) -> None:
        self._session = session
        self._tenant_id = tenant_id
        self.user_id = user_id
        self._version = state.memory_version
        self._epoch = state.kv_epoch
        self._num_facts = num_facts

    @property
    def state(self) -> UserState:
        return UserState(self._version, self._epoch)

    def next_version(self) -> int:
        """Each fact, turn and removal takes one of its own: it orders them and pages changes."""
        self._version += 1
        return self._version

    def raise_epoch(self) -> None:
        """`save` then also destroys the user's disk key, by a trigger of the table."""
        self._epoch += 1

    async def reserve_facts(self, wanted: int) -> tuple[int, QuotaExceeded]:
        """Counts up to `wanted` more live facts, as many as the quotas leave room for.

        Returns how many, and the refusal that the others meet. Holds the tenant's row until the
        transaction ends: adds of one tenant take turns for their last statements, which is the
        price of a count that is exact.
        """
        row = (
            await self._session.execute(
                _RESERVE,
                {"tenant_id": self._tenant_id, "wanted": wanted, "held": self._num_facts},
            )
        ).one_or_none()
        if row is None:
            raise NotFound("tenant", self._tenant_id)
        room = row.max_facts_per_user - self._num_facts
        self._num_facts += row.granted
        if row.granted == max(0, room):
            return row.granted, QuotaExceeded("max_facts_per_user", row.max_facts_per_user)
        return row.granted, QuotaExceeded("max_facts", row.max_facts)

    async def remove_fact(self) -> None:
        self._num_facts -= 1
        await self._session.execute(
            update(TenantRow)
            .where(TenantRow.tenant_id == self._tenant_id)
            .values(num_facts=TenantRow.num_facts - 1)
        )

    async def save(self) -> None:
        await self._session.execute(
            update(UserRow)
            .where(UserRow.tenant_id == self._tenant_id, UserRow.user_id == self.user_id)
            .values(memory_version=self._version, kv_epoch=self._epoch, num_facts=self._num_facts)
        )
