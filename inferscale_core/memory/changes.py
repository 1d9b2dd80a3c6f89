"""What changes and searches give back, and what changed for a user since a version."""

from __future__ import annotations

from dataclasses import dataclass

from inferscale_core.ids import FactId, TurnId
from inferscale_core.memory.deletion import DeletionReceipt
from inferscale_core.memory.disk_keys import DiskKey
from inferscale_core.memory.facts import Fact, Turn


@dataclass(frozen=True, slots=True)
class UserState:
    """Both count from 0. `kv_epoch` is raised by every update and delete."""

    memory_version: int = 0
    kv_epoch: int = 0


@dataclass(frozen=True, slots=True)
class EmbeddedFact:
    """A fact with its embedding: float32, little endian, as stored."""

    fact: Fact
    embedding: bytes


@dataclass(frozen=True, slots=True)
class ScoredFact:
    """`score`: cosine similarity to the query, -1 to 1."""

    fact: Fact
    score: float


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes in order of memory version. Apply a page, then ask again after `reached_version`.

    `state` is the user's at the moment the page was read; a copy is at that version, and may serve
    it, only once the page that is `last` has been applied. disk_key: on the last page, if it was
    asked for and the user exists.
    """

    state: UserState
    reached_version: int
    last: bool
    facts: tuple[EmbeddedFact, ...] = ()
    removed_fact_ids: tuple[FactId, ...] = ()
    turns: tuple[Turn, ...] = ()
    removed_turn_ids: tuple[TurnId, ...] = ()
    disk_key: DiskKey | None = None


@dataclass(frozen=True, slots=True)
class AddedFact:
    """`already_existed`: the user had this statement before, and `fact` is that one."""

    fact: Fact
    already_existed: bool


@dataclass(frozen=True, slots=True)
class UpdatedFact:
    """`dependants`: facts whose chunks had seen the old revision, directly or through others."""

    fact: Fact
    dependants: tuple[FactId, ...]
    state: UserState


@dataclass(frozen=True, slots=True)
class DeletedFact:
    """purged_turn_ids: source turns that went with the fact. The receipt names the dependants."""

    receipt: DeletionReceipt
    purged_turn_ids: tuple[TurnId, ...]
    state: UserState


@dataclass(frozen=True, slots=True)
class DeletedTurns:
    """`dependants`: facts whose chunks had seen one of the turns, directly or through others."""

    turn_ids: tuple[TurnId, ...]
    dependants: tuple[FactId, ...]
    state: UserState
