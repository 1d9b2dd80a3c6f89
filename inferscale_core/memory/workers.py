"""Workers as control knows them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from inferscale_core.ids import ModelRevision, RecipeHash, WorkerId
from inferscale_core.memory.encoding import EncodeTarget


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Two parts may compare vectors only when all three fields agree."""

    embedder_id: str
    revision: str
    dimension: int


class Joined(Enum):
    """NEW: an instance that holds nothing yet. BACK: one whose lease had ended."""

    NEW = auto()
    BACK = auto()
    RENEWED = auto()


@dataclass(frozen=True, slots=True)
class Worker:
    """`instance_id` is new at each start of the process; `address` is host:port."""

    worker_id: WorkerId
    instance_id: str
    address: str
    model: str
    model_revision: ModelRevision
    recipe: str
    recipe_hash: RecipeHash
    embedder: EmbedderIdentity
    draining: bool = False
    max_fact_tokens: int = 512

    @property
    def target(self) -> EncodeTarget:
        return EncodeTarget(self.model, self.model_revision, self.recipe, self.recipe_hash)
