"""Which facts may be encoded now.

A fact may be encoded once the chunks of its prefix are resident. All facts that may form one wave,
so encoding by waves gives exactly what encoding one by one in order of memory version gives.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from inferscale_core.ids import ChunkKey
from inferscale_core.memory.canonical import ChunkSpec


def next_wave(specs: Iterable[ChunkSpec], resident: Container[ChunkKey]) -> list[ChunkSpec]:
    """The specs whose chunk is missing and whose prefix is resident, in the order given."""
    return [
        spec
        for spec in specs
        if spec.key not in resident and all(key in resident for key in spec.prefix_keys)
    ]
