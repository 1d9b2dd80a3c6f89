"""Token F1 of an answer, with the normalisation of SQuAD (Rajpurkar et al., 2016).

Lower case, no punctuation, no articles; then the overlap of two bags of words.
"""

from __future__ import annotations

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def token_f1(answer: str, gold: str) -> float:
    """0 to 1. Two texts without a word are equal."""
    said, wanted = normalised(answer), normalised(gold)
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(said), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
