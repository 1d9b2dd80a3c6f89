"""Everything that can be done to a user's memory, by what it does to it."""

from __future__ import annotations

from dataclasses import dataclass

from services.control.memory.adding import AddUseCases
from services.control.memory.reading import ReadUseCases
from services.control.memory.removing import RemoveUseCases
from services.control.memory.turns import TurnUseCases


@dataclass(frozen=True, slots=True)
class MemoryUseCases:
    reads: ReadUseCases
    adds: AddUseCases
    removals: RemoveUseCases
    turns: TurnUseCases
