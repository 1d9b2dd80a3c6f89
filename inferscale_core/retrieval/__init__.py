"""One user's memory as a worker holds it: facts, their vectors, and the chunks they need."""

from inferscale_core.retrieval.delta import FactEntry, MemoryDelta, TurnEntry
from inferscale_core.retrieval.rows import SearchDevice
from inferscale_core.retrieval.snapshot import ChunkRules, UserSnapshot

__all__ = ["ChunkRules", "FactEntry", "MemoryDelta", "SearchDevice", "TurnEntry", "UserSnapshot"]
