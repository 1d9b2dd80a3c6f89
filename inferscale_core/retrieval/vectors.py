"""The vectors of one user's facts, and exact search over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from inferscale_core.ids import FactId
from inferscale_core.retrieval.similarity import as_exact, rank, similarities


@dataclass(frozen=True, slots=True)
class FactVectors:
    """Immutable. matrix: [num_facts, dimension] float32 on the device of search; row i is ids[i].

    Rows are sorted by fact id, so that a stable sort by similarity puts the older id first.
    """

    ids: tuple[FactId, ...]
    row_by_id: Mapping[FactId, int]
    matrix: torch.Tensor

    @classmethod
    def empty(cls, dimension: int, device: torch.device) -> FactVectors:
        return cls((), {}, torch.empty((0, dimension), dtype=torch.float32, device=device))

    def replaced(
        self, removed: Iterable[FactId], added_ids: list[FactId], added: torch.Tensor | None
    ) -> FactVectors:
        """Without the removed rows and with the added ones; an added id replaces its old row.

        Raises InvalidInput for an added vector that is not finite and of norm 1.
        """
        gone = {*removed, *added_ids}
        kept = [fact_id for fact_id in self.ids if fact_id not in gone]
        rows = self.matrix[self._rows(kept)]
        if added is not None and added_ids:
            rows = torch.cat([rows, as_exact(added).to(self.matrix.device)])
        unsorted = kept + added_ids
        order = sorted(range(len(unsorted)), key=unsorted.__getitem__)
        ids = tuple(unsorted[index] for index in order)
        matrix = rows[torch.tensor(order, dtype=torch.long, device=self.matrix.device)]
        return FactVectors(ids, {fact_id: row for row, fact_id in enumerate(ids)}, matrix)

    def nearest(self, query: torch.Tensor, limit: int) -> list[tuple[FactId, float]]:
        """The `limit` facts most similar to a unit vector ([dimension]), most similar first."""
        exact = as_exact(query.to(self.matrix.device))
        scores = similarities(exact[None], self.matrix)[0]
        best = rank(scores, limit)
        values = scores[best].tolist()
        return [(self.ids[row], value) for row, value in zip(best, values, strict=True)]

    def _rows(self, ids: Iterable[FactId]) -> torch.Tensor:
        rows = [self.row_by_id[fact_id] for fact_id in ids]
        return torch.tensor(rows, dtype=torch.long, device=self.matrix.device)
