"""The vectors of one user's facts, and exact search over them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from inferscale_core.ids import FactId
from inferscale_core.retrieval.rows import SearchDevice, VectorRows
from inferscale_core.retrieval.similarity import (
    MAX_RANKED_ROWS,
    as_exact,
    best,
    ranks,
    similarities,
    unranked,
)


@dataclass(frozen=True, slots=True)
class FactVectors:
    """Immutable. Row i is that of ids[i].

    Rows are sorted by fact id, so that among equal similarities the first row is that of the older
    id. Ids grow with time, so new facts are appended and nothing is copied; an update, a delete and
    an id that arrives late copy the user's rows.
    """

    ids: tuple[FactId, ...]
    rows: VectorRows
    device: SearchDevice

    @classmethod
    def empty(cls, dimension: int, device: SearchDevice) -> FactVectors:
        return cls((), VectorRows.of(torch.empty(0, dimension)), device)

    @property
    def matrix(self) -> torch.Tensor:
        """[num_facts, dimension] float32, in host memory."""
        return self.rows.first(len(self.ids))

    @property
    def is_on_device(self) -> bool:
        """Whether it is searched on the device rather than on the host."""
        return self.device.takes(self.rows)

    @property
    def has_few_facts(self) -> bool:
        """Whether a similarity and its row make one number."""
        return len(self.ids) <= MAX_RANKED_ROWS

    def on_device(self) -> torch.Tensor:
        """The matrix where it is searched."""
        return self.device.search_rows(self.rows, len(self.ids))

    def row_of(self, fact_id: FactId) -> int:
        """Of an id that is here."""
        return bisect_left(self.ids, fact_id)

    def replaced(
        self, removed: Iterable[FactId], added_ids: list[FactId], added: torch.Tensor | None
    ) -> FactVectors:
        """Without the removed rows and with the added ones; an added id replaces its old row.

        Raises InvalidInput for an added vector that is not finite and of norm 1.
        """
        order = sorted(range(len(added_ids)), key=added_ids.__getitem__)
        new_ids = tuple(added_ids[index] for index in order)
        new_rows = self.matrix[:0] if added is None else as_exact(added)[order]
        gone = {*removed, *new_ids}
        kept = [row for row, fact_id in enumerate(self.ids) if fact_id not in gone]
        if len(kept) < len(self.ids) or (self.ids and new_ids and new_ids[0] < self.ids[-1]):
            return self._merged(kept, new_ids, new_rows)
        if not new_ids:
            return self
        rows = self.rows.appended(len(self.ids), new_rows)
        return FactVectors(self.ids + new_ids, rows, self.device)

    def nearest(self, query: torch.Tensor, limit: int) -> list[tuple[FactId, float]]:
        """The `limit` facts most similar to a unit vector ([dimension]), most similar first."""
        return self.named(self.ranked(as_exact(query), limit).cpu())

    def ranked(self, query: torch.Tensor, limit: int) -> torch.Tensor:
        """Those of `nearest` for an exact query ([dimension]), as numbers for `named`: [count],
        int64, where the rows are. Waits for no device but to bring a query to another."""
        rows = self.on_device()
        scores = similarities(query[None].to(rows.device), rows)[0]
        if self.has_few_facts:
            return ranks(scores, limit)
        values, indices = best(scores, limit)
        return torch.cat([values.view(torch.int64), indices])

    def named(self, ranking: torch.Tensor) -> list[tuple[FactId, float]]:
        """ranking: what `ranked` gave, in host memory."""
        if self.has_few_facts:
            return [(self.ids[row], score) for row, score in unranked(ranking.tolist())]
        bits, rows = ranking.view(2, -1)
        scores = bits.view(torch.float64).tolist()
        return [(self.ids[row], score) for row, score in zip(rows.tolist(), scores, strict=True)]

    def _merged(
        self, kept: list[int], new_ids: tuple[FactId, ...], new_rows: torch.Tensor
    ) -> FactVectors:
        """In rows of their own, so that what was removed ends with the last version that saw it."""
        ids = [*(self.ids[row] for row in kept), *new_ids]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        rows = torch.cat([self.matrix[kept], new_rows])[order]
        return FactVectors(tuple(ids[place] for place in order), VectorRows.of(rows), self.device)
