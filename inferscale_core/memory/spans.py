"""What of a prompt is to be injected: spans, as two columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload

from inferscale_core.ids import ChunkKey


class Span(NamedTuple):
    """`num_tokens` prompt tokens whose KV the chunk `key` holds."""

    key: ChunkKey
    num_tokens: int


class Spans(Sequence[Span]):
    """What a request names is written and read a column at a time, on the way of every request: of
    130 spans as many objects would take longer to make than all that is done with them. Never
    changed."""

    __slots__ = ("counts", "keys")

    def __init__(self, keys: Sequence[ChunkKey], counts: Sequence[int]) -> None:
        """counts: the tokens of each key."""
        assert len(keys) == len(counts)
        self.keys = keys
        self.counts = counts

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Spans:
        if isinstance(spans, Spans):
            return spans
        keys, counts = list(zip(*spans, strict=True)) or ((), ())
        return cls(keys, counts)

    @property
    def num_tokens(self) -> int:
        return sum(self.counts)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> Spans: ...

    def __getitem__(self, index: int | slice) -> Span | Spans:
        if isinstance(index, slice):
            return Spans(self.keys[index], self.counts[index])
        return Span(self.keys[index], self.counts[index])

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of the same spans."""
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Spans({list(self)})"
