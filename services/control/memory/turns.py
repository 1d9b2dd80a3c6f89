"""Appending the turns of conversations. Deleting them takes chunks away, so `removing` has it."""

from __future__ import annotations

from inferscale_core.rpc.identity import TenantPrincipal
from inferscale_core.store import RequestOutcome, Store
from services.control.memory.answers import AppendedTurns
from services.control.memory.commands import AppendTurns

APPEND_TURNS = "append_turns"


class TurnUseCases:
    """Turns alone queue no encoding: no chunk may see a turn that came after its fact."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(self, caller: TenantPrincipal, command: AppendTurns) -> AppendedTurns:
        """Raises InvalidInput for a turn id that the user already has."""
        async with self._store.transaction(caller.tenant_id) as tx:
            outcome = await tx.requests.claim(command.request_id, APPEND_TURNS, command.content)
            if outcome is not None:
                return AppendedTurns(outcome.turn_ids, outcome.memory_version)
            turns = await tx.turns.append(command.user_id, command.conversation_id, command.turns)
            turn_ids = tuple(turn.turn_id for turn in turns)
            state = await tx.users.state(command.user_id)
            await tx.audit.record(
                caller.key_id,
                APPEND_TURNS,
                user_id=command.user_id,
                request_id=command.request_id,
                ids={"turn": turn_ids},
            )
            await tx.requests.complete(
                command.request_id, RequestOutcome(state.memory_version, turn_ids=turn_ids)
            )
        return AppendedTurns(turn_ids, state.memory_version)
