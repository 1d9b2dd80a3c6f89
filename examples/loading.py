"""Puts the story into the service and waits until every fact of it is encoded."""

from __future__ import annotations

import time

from examples.processes import ServiceFailed
from examples.progress import Step
from examples.stack import Stack
from examples.story import Story
from inferscale_core.client import EncodeState, InferScale, NewMemory, Turn

ENCODED_WITHIN_S = 1200.0


def store_story(client: InferScale, story: Story, user_id: str) -> int:
    """Turns first, then the facts that name them, in one batch. Returns the number of facts."""
    client.append_turns(
        user_id,
        story.conversation_id,
        [Turn(turn.speaker, turn.text, turn.occurred_at, turn.turn_id) for turn in story.turns],
    )
    added = client.batch_add_memories(
        user_id,
        [
            NewMemory(fact.text, fact.occurred_at, story.conversation_id, fact.turn_ids)
            for fact in story.facts
        ],
    )
    for item in added.items:
        if item.error is not None:
            raise item.error
    return len(added.items)


def wait_until_encoded(
    client: InferScale, user_id: str, total: int, stack: Stack, step: Step
) -> None:
    """Shows how far it is. Raises ServiceFailed when a fact cannot be encoded or time is over."""
    while (done := _num_encoded(client, user_id)) < total:
        stack.require_running()
        if step.elapsed_s > ENCODED_WITHIN_S:
            raise ServiceFailed(
                f"{done} of {total} facts were encoded in {step.elapsed_s:.0f} s.\n"
                f"{stack.explain()}"
            )
        step.say(f"{done} of {total} facts, {done / step.elapsed_s:.1f} a second", done / total)
        time.sleep(0.25)
    step.result(f"{total} facts, {total / step.elapsed_s:.1f} a second")


def _num_encoded(client: InferScale, user_id: str) -> int:
    memories = client.list_memories(user_id, page_size=500).memories
    for memory in memories:
        for status in memory.encode_status:
            if status.state is EncodeState.FAILED:
                raise ServiceFailed(f"memory {memory.memory_id} was not encoded: {status.reason}")
    return sum(memory.is_encoded for memory in memories)
