"""A prepared data set as the changes of users: what control would answer a worker."""

from __future__ import annotations

from collections.abc import Iterator

from inferscale_core.embedding.embedder import Vectors
from inferscale_core.ids import FactId, TenantId, UserId
from inferscale_core.memory.recipes import Recipe
from inferscale_core.rpc.pb.inferscale.v1 import sync_pb2
from services.evaluation.dataset import Conversation
from services.evaluation.prepared import Prepared, PreparedVectors
from services.worker.users import UserAt


class PreparedMemory:
    """The users of one data set, one for each conversation. Facts arrive one a version."""

    def __init__(self, prepared: Prepared, recipe: Recipe, tenant_id: TenantId) -> None:
        self._embedder = PreparedVectors(prepared)
        self._recipe = recipe
        self._tenant_id = tenant_id
        self._conversations = {UserId(c.name): c for c in prepared.conversations}

    def users(self) -> list[UserAt]:
        return [
            UserAt(self._tenant_id, user_id, _version(conversation))
            for user_id, conversation in self._conversations.items()
        ]

    def fact_ids(self, user: UserAt) -> list[FactId]:
        return [_fact_id(n) for n in range(len(self._conversations[user.user_id].facts))]

    async def list_changes(
        self, tenant_id: TenantId, user_id: UserId, after_version: int
    ) -> list[sync_pb2.ListChangesResponse]:
        conversation = self._conversations[user_id]
        lines = [self._recipe.render(fact.text, fact.occurred_at) for fact in conversation.facts]
        vectors = self._embedder.embed(lines)
        page = sync_pb2.ListChangesResponse(
            memory_version=_version(conversation),
            last=True,
            facts=_facts(conversation, vectors),
            turns=_turns(conversation),
        )
        return [page]


def _version(conversation: Conversation) -> int:
    return len(conversation.facts) + 1


def _fact_id(number: int) -> FactId:
    return FactId(f"fact-{number:06}")


def _facts(conversation: Conversation, vectors: Vectors) -> Iterator[sync_pb2.FactChange]:
    for number, (fact, vector) in enumerate(zip(conversation.facts, vectors, strict=True)):
        change = sync_pb2.FactChange(
            fact_id=_fact_id(number),
            revision=1,
            memory_version=number + 2,
            text=fact.text,
            embedding=vector.astype("<f4").tobytes(),
            conversation_id=conversation.name if fact.turn_ids else "",
            turn_ids=fact.turn_ids,
        )
        if fact.occurred_at is not None:
            change.occurred_at.FromDatetime(fact.occurred_at)
        yield change


def _turns(conversation: Conversation) -> Iterator[sync_pb2.TurnChange]:
    for position, turn in enumerate(conversation.turns):
        yield sync_pb2.TurnChange(
            turn_id=turn.turn_id,
            conversation_id=conversation.name,
            position=position,
            speaker=turn.speaker,
            text=turn.text,
            memory_version=1,
        )
