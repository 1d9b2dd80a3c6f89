"""What was said to every question, in files of their own beside the scores.

Scores may be shown to anybody; answers are made of what a data set says. They are kept so that a
judge can be asked at any later time, also on another machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from inferscale_core.errors import InvalidInput
from services.evaluation.scores import ScoreFile, said_digest

FOLDER = "answers"


def save_answers(path: Path, said: Sequence[str]) -> None:
    """path: of the file of scores, in whose order they are."""
    kept = _beside(path)
    kept.parent.mkdir(exist_ok=True)
    partial = kept.with_suffix(".partial")
    partial.write_text(json.dumps(list(said), ensure_ascii=False), encoding="utf-8")
    partial.replace(kept)


def load_answers(path: Path, file: ScoreFile) -> list[str]:
    """Raises InvalidInput where they are not those that the scores are of."""
    kept = _beside(path)
    if not kept.exists():
        raise InvalidInput("out", f"{kept} is missing: without answers, {path.name} is not judged")
    try:
        said = json.loads(kept.read_text(encoding="utf-8"))
        digests = [said_digest(one) for one in said]
    except (ValueError, TypeError, AttributeError) as exc:
        raise InvalidInput("out", f"{kept} holds no answers") from exc
    if digests != [score.said for score in file.scores]:
        raise InvalidInput("out", f"{kept} holds other answers than {path.name} has scores of")
    return list(said)


def _beside(path: Path) -> Path:
    return path.parent / FOLDER / path.name
