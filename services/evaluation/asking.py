"""How a question of a data set is put, alike in every mode."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from inferscale_core.memory.recipes import Recipe
from inferscale_core.prompt import ChatMessage
from services.evaluation.dataset import Question

INSTRUCTION = (
    "Reply with the shortest phrase that answers the question, in words of the notes where "
    "possible. Say when something happened as a date."
)


@dataclass(frozen=True, slots=True)
class Asking:
    """max_tokens: of an answer. stop: what ends one beside the model's own end token."""

    instruction: str = INSTRUCTION
    max_tokens: int = 32
    stop: tuple[str, ...] = ("\n",)

    def messages(self, question: Question) -> tuple[ChatMessage, ...]:
        """The question alone is last: it is what facts are searched by."""
        asked = ChatMessage("user", question.text)
        return (ChatMessage("system", self.instruction), asked) if self.instruction else (asked,)

    def digest(self) -> str:
        """Names how it is asked, for scores."""
        return _digest(self.instruction, str(self.max_tokens), *self.stop)


def wording_digest(recipe: Recipe) -> str:
    """Names how prompts of a recipe read: text mode is the same for all that read alike."""
    return _digest(recipe.header, recipe.footer, recipe.dated_fact, recipe.undated_fact)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
