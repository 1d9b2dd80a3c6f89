"""The conversation turns before a fact's source: the prefix of the paper's recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from inferscale_core.ids import ConversationId, TurnId
from inferscale_core.retrieval.delta import FactEntry, TurnEntry


class TurnWindows:
    """The turns of one user, in order within each conversation. Immutable."""

    def __init__(self, turns: Mapping[TurnId, TurnEntry] | None = None) -> None:
        self._turns = dict(turns or {})
        self._by_conversation: dict[ConversationId, list[TurnEntry]] = {}
        for turn in sorted(self._turns.values(), key=lambda turn: turn.place):
            self._by_conversation.setdefault(turn.conversation_id, []).append(turn)

    def replaced(self, removed: Iterable[TurnId], added: Iterable[TurnEntry]) -> Self:
        turns = {**self._turns, **{turn.turn_id: turn for turn in added}}
        for turn_id in removed:
            turns.pop(turn_id, None)
        return type(self)(turns)

    def conversations_of(self, turn_ids: Iterable[TurnId]) -> set[ConversationId]:
        return {self._turns[t].conversation_id for t in turn_ids if t in self._turns}

    def before(self, fact: FactEntry, num_turns: int, max_tokens: int) -> tuple[TurnEntry, ...]:
        """Up to `num_turns` turns just before the fact's first source turn, oldest first.

        Fewer when more would pass `max_tokens` together; none when the fact names no known turn.
        """
        sources = [self._turns[t] for t in fact.turn_ids if t in self._turns]
        if not sources or num_turns == 0:
            return ()
        first = min(sources, key=lambda turn: turn.place)
        earlier = [
            turn
            for turn in self._by_conversation[first.conversation_id]
            if turn.place < first.place
        ]
        window: list[TurnEntry] = []
        for turn in reversed(earlier[-num_turns:]):
            max_tokens -= len(turn.token_ids)
            if max_tokens < 0:
                break
            window.append(turn)
        return tuple(reversed(window))
