"""Two small conversations in LoCoMo's format, written for these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FIRST_TALK = [
    ("Ines", "I moved into the flat above the bakery last week."),
    ("Otto", "Then you smell bread all day. I still keep bees on the roof."),
    ("Ines", "How many hives do you have now?"),
    ("Otto", "Four, and the fifth comes in spring."),
    ("Ines", "My cat Basil is afraid of everything that buzzes."),
]
_SECOND_TALK = [
    ("Otto", "The fifth hive has arrived, a green one."),
    ("Ines", "Basil saw it from the window and hid."),
    ("Otto", "I also began to play the cello again."),
    ("Ines", "Play at my birthday on the ninth of June!"),
]


def conversation(speaker: str, other: str, extra: str) -> dict[str, Any]:
    """One file's content; `extra` makes its facts differ from another's."""

    def turns(session: int, talk: list[tuple[str, str]]) -> list[dict[str, str]]:
        names = {"Ines": speaker, "Otto": other}
        return [
            {"speaker": names[who], "dia_id": f"D{session}:{n}", "text": text}
            for n, (who, text) in enumerate(talk, 1)
        ]

    second = turns(2, _SECOND_TALK)
    second[0]["blip_caption"] = "a green wooden box on a roof"
    return {
        "speaker_a": speaker,
        "speaker_b": other,
        "session_1_date_time": "9:05 am on 3 February, 2024",
        "session_1": turns(1, _FIRST_TALK),
        "session_1_observation": {
            speaker: [
                [f"{speaker} lives in a flat above the bakery.", "D1:1"],
                [f"{speaker} has a cat called Basil that is afraid of bees.", ["D1:5", "D1:2"]],
                [f"{speaker} {extra}.", "D1:3"],
            ],
            other: [
                [f"{other} keeps bees on the roof and has four hives.", "D1:2, D1:4"],
                [f"{other} will get a fifth hive in spring.", "D1:4"],
            ],
        },
        "session_2_date_time": "7:40 pm on 18 April, 2024",
        "session_2": second,
        "session_2_observation": {
            other: [
                [f"{other}'s fifth hive is green.", "D2:1"],
                [f"{other} plays the cello again.", "D2:3"],
            ],
            speaker: [[f"{speaker}'s birthday is on 9 June.", "D2:4"]],
        },
        "session_3_date_time": "8:00 am on 1 May, 2024",
        "qa": [
            {"question": "What is the cat called?", "answer": "Basil", "category": 4},
            {
                "question": f"When did {other} get a green hive?",
                "answer": "April 2024",
                "category": 2,
            },
            {"question": f"How many hives does {other} have?", "answer": 5, "category": 1},
            {"question": f"What would {speaker} like?", "answer": "fresh bread", "category": 3},
            {
                "question": f"What does {speaker} play?",
                "adversarial_answer": "the cello",
                "category": 5,
            },
        ],
    }


def write_conversations(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1.json").write_text(json.dumps(conversation("Ines", "Otto", "counts hives")))
    (folder / "2.json").write_text(json.dumps(conversation("Mara", "Lew", "bakes on Sundays")))
    return folder
