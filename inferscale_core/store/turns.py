"""The conversations of one tenant's users."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.errors import InvalidInput, NotFound
from inferscale_core.ids import ConversationId, FactId, TenantId, TurnId, UserId
from inferscale_core.memory.changes import DeletedTurns
from inferscale_core.memory.facts import NewTurn, Turn
from inferscale_core.store.checks import checked_text
from inferscale_core.store.identifiers import new_id
from inferscale_core.store.provenance import SAW_DELETED, drop_dependants
from inferscale_core.store.removals import TURN, record_removals
from inferscale_core.store.rows import ConversationRow, TurnRow
from inferscale_core.store.users import LockedUser, UserRepository


class TurnRepository:
    """The caller owns the transaction. A turn's id is unique for its user."""

    def __init__(self, session: AsyncSession, tenant_id: TenantId, users: UserRepository) -> None:
        self._session = session
        self._tenant_id = tenant_id
        self._users = users

    async def append(
        self, user_id: UserId, conversation_id: ConversationId, turns: Sequence[NewTurn]
    ) -> list[Turn]:
        """Puts the turns behind the conversation's last one, which is made if it is new.

        Raises InvalidInput naming the first turn whose id is taken; nothing was written.
        """
        named = [turn.turn_id for turn in turns if turn.turn_id]
        user = await self._users.lock(user_id)
        taken = set(await self.existing(user_id, named))
        for index, turn in enumerate(turns):
            checked_text(f"turns[{index}].speaker", turn.speaker)
            checked_text(f"turns[{index}].text", turn.text)
            if turn.turn_id:
                if turn.turn_id in taken:
                    raise InvalidInput(f"turns[{index}].turn_id", f"{turn.turn_id!r} is taken")
                taken.add(turn.turn_id)
        first = await self._reserve_positions(user_id, conversation_id, len(turns))
        rows = await self._session.scalars(
            insert(TurnRow)
            .values(
                [
                    {
                        "tenant_id": self._tenant_id,
                        "user_id": user_id,
                        "turn_id": turn.turn_id or new_id(),
                        "conversation_id": conversation_id,
                        "position": first + offset,
                        "speaker": turn.speaker,
                        "text": turn.text,
                        "occurred_at": turn.occurred_at,
                        "memory_version": user.next_version(),
                        "created_at": func.now(),
                    }
                    for offset, turn in enumerate(turns)
                ]
            )
            .returning(TurnRow)
        )
        stored = sorted((turn_from_row(row) for row in rows), key=lambda turn: turn.position)
        await user.save()
        return stored

    async def delete(
        self,
        user_id: UserId,
        conversation_id: ConversationId,
        turn_ids: Sequence[TurnId] | None = None,
    ) -> DeletedTurns:
        """Removes the turns, or all of the conversation, and drops every chunk that saw one.

        Raises NotFound for an unknown conversation or turn; nothing was written.
        """
        user = await self._users.lock(user_id)
        held = await self._of_conversation(user_id, conversation_id)
        wanted = held if turn_ids is None else tuple(dict.fromkeys(turn_ids))
        for turn_id in wanted:
            if turn_id not in held:
                raise NotFound("turn", turn_id)
        dependants: tuple[FactId, ...] = ()
        if wanted:
            dependants = await self.remove(user, wanted)
            user.raise_epoch()
            await user.save()
        return DeletedTurns(wanted, dependants, user.state)

    async def existing(self, user_id: UserId, turn_ids: Sequence[TurnId]) -> tuple[TurnId, ...]:
        """Those of the turns that exist, in the order given."""
        known = await self.conversations_of(user_id, turn_ids)
        return tuple(turn_id for turn_id in turn_ids if turn_id in known)

    async def conversations_of(
        self, user_id: UserId, turn_ids: Sequence[TurnId]
    ) -> dict[TurnId, ConversationId]:
        """The conversation of each of the turns that exist."""
        if not turn_ids:
            return {}
        rows = await self._session.execute(
            select(TurnRow.turn_id, TurnRow.conversation_id).where(
                TurnRow.tenant_id == self._tenant_id,
                TurnRow.user_id == user_id,
                TurnRow.turn_id.in_(list(turn_ids)),
            )
        )
        return {
            TurnId(turn_id): ConversationId(conversation_id)
            for turn_id, conversation_id in rows.tuples()
        }

    async def remove(self, user: LockedUser, turn_ids: Sequence[TurnId]) -> tuple[FactId, ...]:
        """Deletes the turns of a locked user and returns the facts whose chunks were dropped.

        The caller raises the epoch and saves the user.
        """
        dependants = await drop_dependants(
            self._session, self._tenant_id, user.user_id, turn_ids=turn_ids, reason=SAW_DELETED
        )
        await self._session.execute(
            delete(TurnRow).where(
                TurnRow.tenant_id == self._tenant_id,
                TurnRow.user_id == user.user_id,
                TurnRow.turn_id.in_(list(turn_ids)),
            )
        )
        await record_removals(self._session, self._tenant_id, user, TURN, turn_ids)
        return dependants

    async def _of_conversation(
        self, user_id: UserId, conversation_id: ConversationId
    ) -> tuple[TurnId, ...]:
        found = await self._session.scalars(
            select(TurnRow.turn_id)
            .where(
                TurnRow.tenant_id == self._tenant_id,
                TurnRow.user_id == user_id,
                TurnRow.conversation_id == conversation_id,
            )
            .order_by(TurnRow.position)
        )
        turn_ids = tuple(TurnId(turn_id) for turn_id in found)
        if not turn_ids and not await self._conversation_exists(user_id, conversation_id):
            raise NotFound("conversation", conversation_id)
        return turn_ids

    async def _conversation_exists(self, user_id: UserId, conversation_id: ConversationId) -> bool:
        found = await self._session.scalar(
            select(ConversationRow.conversation_id).where(
                ConversationRow.tenant_id == self._tenant_id,
                ConversationRow.user_id == user_id,
                ConversationRow.conversation_id == conversation_id,
            )
        )
        return found is not None

    async def _reserve_positions(
        self, user_id: UserId, conversation_id: ConversationId, count: int
    ) -> int:
        """The first of `count` positions."""
        statement = insert(ConversationRow).values(
            tenant_id=self._tenant_id,
            user_id=user_id,
            conversation_id=conversation_id,
            next_position=count,
        )
        end: int | None = await self._session.scalar(
            statement.on_conflict_do_update(
                constraint="conversations_pkey",
                set_={"next_position": ConversationRow.next_position + count},
            ).returning(ConversationRow.next_position)
        )
        assert end is not None, "an upsert that did not fail returns its row"
        return end - count


def turn_from_row(row: TurnRow) -> Turn:
    return Turn(
        turn_id=TurnId(row.turn_id),
        conversation_id=ConversationId(row.conversation_id),
        position=row.position,
        speaker=row.speaker,
        text=row.text,
        memory_version=row.memory_version,
        occurred_at=row.occurred_at,
    )
