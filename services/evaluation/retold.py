"""A memory of any size out of a data set: its facts, and the same told of other people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from inferscale_core.errors import InvalidInput
from services.evaluation.dataset import Conversation, DatasetFact

NAMES = (
    *("Mira", "Freja", "Paolo", "Robin", "Kim", "Anders", "Lucia"),
    *("Hana", "Omar", "Tessa", "Ivo", "Greta", "Noor", "Felix"),
)
NAMESAKES = ("Bruno", "Stella", "Quentin", "Daphne", "Ruben", "Ingrid", "Matteo", "Yasmin")
"""For who has the name of somebody in an earlier conversation, or one of NAMES."""

ONE_USER = "one-user"


def retold(conversation: Conversation, number: int) -> Iterator[DatasetFact]:
    """Its facts, with other names for its speakers, and without their sources. number: which two
    names, and so which telling; the eighth is like the first."""
    speakers = _speakers(conversation)
    names = [name for name in NAMES if name not in speakers]
    others = (names[(2 * number + i) % len(names)] for i in range(2))
    other_by_name = dict(zip(speakers, others, strict=False))
    for fact in conversation.facts:
        yield DatasetFact(_renamed(fact.text, other_by_name), fact.occurred_at, ())


def as_one_user(conversations: Sequence[Conversation], num_facts: int) -> Conversation:
    """One user who was told all conversations, each once as it is and as often of other people as
    `num_facts` needs, one conversation after the other. The ones as they are, which the questions
    are about, stand spread over all; who has an earlier conversation's name there has another one,
    in questions and answers too. Turns are left out, and what is said twice is one fact.

    Raises InvalidInput where so many facts are fewer than there are, or more than can be told.
    """
    conversations = list(_without_namesakes(conversations))
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


def _speakers(conversation: Conversation) -> list[str]:
    return sorted({turn.speaker for turn in conversation.turns})


def _renamed(text: str, other_by_name: Mapping[str, str]) -> str:
    if not other_by_name:
        return text
    names = "|".join(map(re.escape, other_by_name))
    return re.sub(rf"\b({names})\b", lambda match: other_by_name[match[1]], text)


def _without_namesakes(conversations: Sequence[Conversation]) -> Iterator[Conversation]:
    taken = {*NAMES}
    spare = iter(NAMESAKES)
    for conversation in conversations:
        speakers = _speakers(conversation)
        try:
            others = {name: next(spare) for name in speakers if name in taken}
        except StopIteration:
            raise InvalidInput("one_user", "too many speakers have a name in common") from None
        taken.update(speakers)
        yield replace(
            conversation,
            turns=tuple(
                replace(turn, speaker=others.get(turn.speaker, turn.speaker))
                for turn in conversation.turns
            ),
            facts=tuple(
                replace(fact, text=_renamed(fact.text, others)) for fact in conversation.facts
            ),
            questions=tuple(
                replace(
                    question,
                    text=_renamed(question.text, others),
                    answer=_renamed(question.answer, others),
                )
                for question in conversation.questions
            ),
        )


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
