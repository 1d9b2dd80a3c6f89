"""The facts of one tenant's users: reading, adding, updating, deleting, searching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from inferscale_core.errors import (
    AlreadyDeleted,
    InferScaleError,
    InvalidInput,
    NotFound,
    RevisionConflict,
)
from inferscale_core.ids import ConversationId, FactId, TenantId, TurnId, UserId
from inferscale_core.memory.changes import AddedFact, DeletedFact, ScoredFact, UpdatedFact
from inferscale_core.memory.facts import Fact, FactRef, NewFact
from inferscale_core.store.checks import Embedding, checked_embedding, checked_text
from inferscale_core.store.deletions import DeletionRepository
from inferscale_core.store.encodings import EncodingRepository
from inferscale_core.store.identifiers import new_id, statement_hash
from inferscale_core.store.provenance import SAW_DELETED, SAW_UPDATED, drop_dependants
from inferscale_core.store.removals import FACT, record_removals, was_removed
from inferscale_core.store.rows import EncodingRow, FactEmbeddingRow, FactRow
from inferscale_core.store.search import EXACT_UP_TO, nearest_by_index, nearest_exactly
from inferscale_core.store.turns import TurnRepository
from inferscale_core.store.users import LockedUser, UserRepository


class FactRepository:
    """Reads see live revisions; the caller owns the transaction.

    Every write locks the user's row first, so the writes of one user happen one after another and
    each version is given once.
    """

    def __init__(
        self,
        session: AsyncSession,
        tenant_id: TenantId,
        dimension: int,
        users: UserRepository,
        turns: TurnRepository,
        encodings: EncodingRepository,
        deletions: DeletionRepository,
    ) -> None:
        self._session = session
        self._tenant_id = tenant_id
        self._dimension = dimension
        self._users = users
        self._turns = turns
        self._encodings = encodings
        self._deletions = deletions

    def _live(self, user_id: UserId) -> Select[FactRow]:
        """Where every read starts, so that no query can forget the tenant."""
        return select(FactRow).where(
            FactRow.tenant_id == self._tenant_id, FactRow.user_id == user_id, FactRow.is_live
        )

    async def get(self, user_id: UserId, fact_id: FactId) -> Fact:
        """Raises NotFound."""
        return fact_from_row(await self._live_row(user_id, fact_id))

    async def replayed(self, user_id: UserId, fact_id: FactId) -> Fact:
        """The fact that an earlier request stored, as it is now.

        Raises AlreadyDeleted when it has been deleted since.
        """
        try:
            return await self.get(user_id, fact_id)
        except NotFound:
            if await was_removed(self._session, self._tenant_id, user_id, fact_id):
                raise AlreadyDeleted(fact_id) from None
            raise

    async def page(self, user_id: UserId, *, after_version: int = 0, limit: int) -> list[Fact]:
        """Facts in order of memory version. The next page starts after the last one's version."""
        rows = await self._session.scalars(
            self._live(user_id)
            .where(FactRow.memory_version > after_version)
            .order_by(FactRow.memory_version)
            .limit(limit)
        )
        return [fact_from_row(row) for row in rows]

    async def nearest(
        self, user_id: UserId, query: Embedding, *, limit: int, exact_up_to: int = EXACT_UP_TO
    ) -> list[ScoredFact]:
        """The `limit` facts nearest to `query`, nearest first, ties to the older fact id.

        Exact for users of up to `exact_up_to` facts; above, the index proposes candidates, which
        are then ordered exactly.
        """
        vector = checked_embedding(query, self._dimension)
        is_large = await self._users.num_facts(user_id) > exact_up_to
        find = nearest_by_index if is_large else nearest_exactly
        found = await find(self._session, self._tenant_id, user_id, vector, limit=limit)
        return [ScoredFact(fact_from_row(row), score) for row, score in found]

    async def add(self, user_id: UserId, new: NewFact, embedding: Embedding) -> AddedFact:
        """Stores the fact, or finds the one that already states it.

        Raises InvalidInput, NotFound (a turn that it names) or QuotaExceeded; nothing was written.
        """
        [outcome] = await self.add_many(user_id, [(new, embedding)])
        if isinstance(outcome, InferScaleError):
            raise outcome
        return outcome

    async def add_many(
        self, user_id: UserId, items: Sequence[tuple[NewFact, Embedding]]
    ) -> list[AddedFact | InferScaleError]:
        """One result for each item, in order. An item that is refused leaves the others alone.

        An item that says what an earlier one says is that one. Takes the same few statements for
        one item and for hundreds.
        """
        user = await self._users.lock(user_id)
        drafts = await self._drafts(user_id, items)
        fresh = list(
            {d.digest: d for d in drafts if isinstance(d, _Draft) and not d.stored}.values()
        )
        num_granted, refusal = await user.reserve_facts(len(fresh)) if fresh else (0, None)
        rows = await self._insert(user, fresh[:num_granted])
        await user.save()
        stored = {row.content_hash: AddedFact(fact_from_row(row), False) for row in rows}
        outcomes: list[AddedFact | InferScaleError] = []
        for draft in drafts:
            if isinstance(draft, InferScaleError):
                outcomes.append(draft)
            elif draft.stored:
                outcomes.append(AddedFact(draft.stored, already_existed=True))
            elif draft.digest in stored:
                added = stored[draft.digest]
                outcomes.append(added)
                stored[draft.digest] = AddedFact(added.fact, already_existed=True)
            else:
                assert refusal is not None, "what was not inserted was not granted"
                outcomes.append(refusal)
        return outcomes

    async def update(
        self,
        user_id: UserId,
        fact_id: FactId,
        *,
        text: str,
        occurred_at: datetime | None,
        embedding: Embedding,
        expected_revision: int | None = None,
    ) -> UpdatedFact:
        """Writes the next revision and drops every chunk that saw an earlier one.

        Raises NotFound, RevisionConflict, or InvalidInput when another fact of the user already
        states the same.
        """
        checked_text("text", text)
        vector = checked_embedding(embedding, self._dimension)
        user = await self._users.lock(user_id)
        live = await self._live_row(user_id, fact_id)
        if expected_revision is not None and expected_revision != live.revision:
            raise RevisionConflict(fact_id, expected_revision, live.revision)
        digest = statement_hash(text, occurred_at)
        same = (await self._stating(user_id, [digest])).get(digest)
        if same and same.fact_id != fact_id:
            raise InvalidInput("text", f"the user already has this statement: {same.fact_id!r}")
        dependants = await self._drop(user_id, fact_id, SAW_UPDATED)
        await self._supersede(fact_id)
        new = NewFact(text, occurred_at, _conversation(live), _turn_ids(live))
        draft = _Draft(new, vector, digest, fact_id, live.revision + 1, live.created_at)
        [row] = await self._insert(user, [draft])
        user.raise_epoch()
        await user.save()
        return UpdatedFact(fact_from_row(row), dependants, user.state)

    async def delete(
        self, user_id: UserId, fact_id: FactId, *, purge_sources: bool = False
    ) -> DeletedFact:
        """Removes every revision's text and embedding, and drops every chunk that saw one.

        With `purge_sources` the turns it names go too. Raises NotFound, also for a second delete.
        """
        user = await self._users.lock(user_id)
        live = await self._live_row(user_id, fact_id)
        sources = await self._turns.existing(user_id, _turn_ids(live))
        dependants = set(await self._drop(user_id, fact_id, SAW_DELETED))
        purged: tuple[TurnId, ...] = ()
        if purge_sources and sources:
            dependants |= set(await self._turns.remove(user, sources)) - {fact_id}
            purged, sources = sources, ()
        embeddings = await self._delete_rows(FactEmbeddingRow, fact_id)
        rows = await self._delete_rows(FactRow, fact_id)
        await record_removals(self._session, self._tenant_id, user, FACT, [fact_id])
        await user.remove_fact()
        user.raise_epoch()
        await user.save()
        receipt = await self._deletions.create(
            user_id,
            fact_id,
            num_rows=rows,
            num_embeddings=embeddings,
            source_turn_ids=sources,
            dependants=tuple(sorted(dependants)),
        )
        return DeletedFact(receipt, purged, user.state)

    async def _live_row(self, user_id: UserId, fact_id: FactId) -> FactRow:
        row = await self._session.scalar(self._live(user_id).where(FactRow.fact_id == fact_id))
        if row is None:
            raise NotFound("memory", fact_id)
        return row

    async def _stating(self, user_id: UserId, digests: Sequence[str]) -> dict[str, Fact]:
        """Live facts of the user that have one of these content hashes, by hash."""
        rows = await self._session.scalars(
            self._live(user_id).where(FactRow.content_hash.in_(digests))
        )
        return {row.content_hash: fact_from_row(row) for row in rows}

    async def _drafts(
        self, user_id: UserId, items: Sequence[tuple[NewFact, Embedding]]
    ) -> list[_Draft | InferScaleError]:
        """Each item as it would be stored, or why it cannot be. Writes nothing."""
        named = {turn_id for new, _ in items for turn_id in new.turn_ids}
        places = await self._turns.conversations_of(user_id, sorted(named))
        drafts: list[_Draft | InferScaleError] = []
        for new, embedding in items:
            try:
                checked_text("text", new.text)
                vector = checked_embedding(embedding, self._dimension)
                for turn_id in new.turn_ids:
                    if turn_id not in places or places[turn_id] != new.conversation_id:
                        raise NotFound("turn", turn_id)
            except (InvalidInput, NotFound) as exc:
                drafts.append(exc)
            else:
                digest = statement_hash(new.text, new.occurred_at)
                drafts.append(_Draft(new, vector, digest, FactId(new_id())))
        known = await self._stating(
            user_id, [draft.digest for draft in drafts if isinstance(draft, _Draft)]
        )
        return [
            replace(draft, stored=known.get(draft.digest)) if isinstance(draft, _Draft) else draft
            for draft in drafts
        ]

    async def _insert(self, user: LockedUser, drafts: Sequence[_Draft]) -> Sequence[FactRow]:
        """Adds live revisions with their embeddings and their pending encode states."""
        if not drafts:
            return []
        keys = [
            {
                "tenant_id": self._tenant_id,
                "user_id": user.user_id,
                "fact_id": draft.fact_id,
                "revision": draft.revision,
            }
            for draft in drafts
        ]
        rows = await self._session.scalars(
            insert(FactRow)
            .values(
                [
                    {
                        **key,
                        "text": draft.new.text,
                        "occurred_at": draft.new.occurred_at,
                        "conversation_id": draft.new.conversation_id,
                        "turn_ids": list(draft.new.turn_ids),
                        "memory_version": user.next_version(),
                        "is_live": True,
                        "content_hash": draft.digest,
                        "created_at": draft.created_at or func.now(),
                        "updated_at": func.now(),
                    }
                    for key, draft in zip(keys, drafts, strict=True)
                ]
            )
            .returning(FactRow)
        )
        stored = list(rows)
        await self._session.execute(
            insert(FactEmbeddingRow).values(
                [
                    {**key, "embedding": draft.vector}
                    for key, draft in zip(keys, drafts, strict=True)
                ]
            )
        )
        await self._encodings.expect(user.user_id, [draft.ref for draft in drafts])
        return stored

    async def _supersede(self, fact_id: FactId) -> None:
        await self._session.execute(
            update(FactRow)
            .where(FactRow.tenant_id == self._tenant_id, FactRow.fact_id == fact_id)
            .values(is_live=False)
        )
        await self._delete_rows(FactEmbeddingRow, fact_id)

    async def _drop(self, user_id: UserId, fact_id: FactId, reason: str) -> tuple[FactId, ...]:
        dependants = await drop_dependants(
            self._session, self._tenant_id, user_id, fact_ids=[fact_id], reason=reason
        )
        await self._delete_rows(EncodingRow, fact_id)
        return dependants

    async def _delete_rows(
        self, table: type[FactRow] | type[FactEmbeddingRow] | type[EncodingRow], fact_id: FactId
    ) -> int:
        gone = await self._session.execute(
            delete(table)
            .where(table.tenant_id == self._tenant_id, table.fact_id == fact_id)
            .returning(table.revision)
        )
        return len(gone.all())


@dataclass(frozen=True, slots=True)
class _Draft:
    """A revision about to be written. `stored`: the live fact that already states the same."""

    new: NewFact
    vector: Embedding
    digest: str
    fact_id: FactId
    revision: int = 1
    created_at: datetime | None = None
    stored: Fact | None = None

    @property
    def ref(self) -> FactRef:
        return FactRef(self.fact_id, self.revision)


def fact_from_row(row: FactRow) -> Fact:
    return Fact(
        fact_id=FactId(row.fact_id),
        user_id=UserId(row.user_id),
        text=row.text,
        revision=row.revision,
        memory_version=row.memory_version,
        created_at=row.created_at,
        updated_at=row.updated_at,
        occurred_at=row.occurred_at,
        conversation_id=_conversation(row),
        turn_ids=_turn_ids(row),
    )


def _conversation(row: FactRow) -> ConversationId | None:
    return ConversationId(row.conversation_id) if row.conversation_id else None


def _turn_ids(row: FactRow) -> tuple[TurnId, ...]:
    return tuple(TurnId(turn_id) for turn_id in row.turn_ids)
