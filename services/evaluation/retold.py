"""A memory of any size out of a data set: its facts, and the same told of other people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from inferscale_core.errors import InvalidInput
from services.evaluation.dataset import Conversation, DatasetFact

NAMES = (
    *("Mira", "Freja", "Paolo", "Robin", "Kim", "Anders", "Lucia"),
    *("Hana", "Omar", "Tessa", "Ivo", "Greta", "Noor", "Felix"),
)
ONE_USER = "one-user"


def retold(conversation: Conversation, number: int) -> Iterator[DatasetFact]:
    """Its facts, with other names for its speakers, and without their sources. number: which two
    names, and so which telling; the eighth is like the first."""
    speakers = sorted({turn.speaker for turn in conversation.turns})
    others = (NAMES[(2 * number + i) % len(NAMES)] for i in range(2))
    other_by_name = dict(zip(speakers, others, strict=False))
    for fact in conversation.facts:
        text = fact.text
        for name, other in other_by_name.items():
            text = text.replace(name, other)
        yield DatasetFact(text, fact.occurred_at, ())


def as_one_user(conversations: Sequence[Conversation], num_facts: int) -> Conversation:
    """One user who was told all conversations, each once as it is and as often of other people as
    `num_facts` needs, one conversation after the other. The ones as they are, which the questions
    are about, stand spread over all. Turns are left out, and what is said twice is one fact.

    Raises InvalidInput where so many facts are fewer than there are, or more than can be told.
    """
    own = {fact.text for conversation in conversations for fact in conversation.facts}
    if num_facts < len(own):
        raise InvalidInput("one_user", f"{num_facts} is fewer than the {len(own)} facts there are")
    facts: list[DatasetFact] = []
    for rounds in range(1, 2 + len(NAMES) // 2):
        facts = _told(conversations, rounds)
        if len(facts) >= num_facts:
            break
    else:
        raise InvalidInput(
            "one_user", f"{num_facts} is more than the {len(facts)} that can be told"
        )
    questions = tuple(question for c in conversations for question in c.questions)
    kept = _without_last(facts, len(facts) - num_facts, own)
    return Conversation(ONE_USER, (), tuple(kept), questions)


def _told(conversations: Sequence[Conversation], rounds: int) -> list[DatasetFact]:
    told: dict[str, DatasetFact] = {}
    for number in range(rounds):
        for place, conversation in enumerate(conversations):
            own_round = place % rounds
            telling = place + number - (number > own_round)
            as_it_is = number == own_round
            for fact in conversation.facts if as_it_is else retold(conversation, telling):
                told.setdefault(fact.text, replace(fact, turn_ids=()))
    return list(told.values())


def _without_last(facts: Sequence[DatasetFact], count: int, own: Set[str]) -> Iterator[DatasetFact]:
    """All but the last `count` that are not the conversations' own."""
    others = [fact.text for fact in facts if fact.text not in own]
    dropped = set(others[len(others) - count :])
    return (fact for fact in facts if fact.text not in dropped)
