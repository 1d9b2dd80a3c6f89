"""A request as the scheduler side follows it: what of its leading chunks can be supplied.

    spans:   | header | A | B | C | D | E |
    run:     | known in some tier    |        D is unknown: the run ends before it
    on GPU:  | header | A |                   B and C are lower
    computed |≡≡≡|                            the engine's own prefix hit

What the engine has computed need not be supplied, wherever it lies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inferscale_core.kv.directory import ChunkDirectory, num_on_gpu
from inferscale_core.kv.tiers import Entry
from inferscale_core.vllm_connector.params import RequestParams


@dataclass(slots=True)
class Supply:
    """Chunks that can be injected: of prompt tokens [start, end), all in the arena."""

    entries: list[Entry]
    start: int
    end: int


@dataclass(slots=True)
class RequestState:
    """covered: prompt tokens that were native hits or injected when it was last scheduled. run: the
    leading known spans, as of the directory's `run_generation`, holding `run_tokens` tokens.
    offered: what the engine was told last."""

    request_id: str
    params: RequestParams
    num_span_tokens: int = 0
    covered: int = 0
    num_injected: int = 0
    run: list[Entry] = field(default_factory=list)
    run_tokens: int = 0
    run_on_gpu: int = 0
    run_generation: int = -1
    offered: Supply = field(default_factory=lambda: Supply([], 0, 0))

    def find_run(self, directory: ChunkDirectory) -> None:
        """Bring the run up to date; a waiting request is asked in every step."""
        if self.run_generation != directory.generation:
            self.run = directory.known_run(self.params.spans)
            self.run_tokens = sum(entry.num_tokens for entry in self.run)
            self.run_on_gpu = num_on_gpu(self.run)
            self.run_generation = directory.generation

    @property
    def is_on_gpu(self) -> bool:
        """Whether the whole run is."""
        return self.run_on_gpu == len(self.run)

    def whole_run(self) -> Supply:
        return Supply(self.run, 0, self.run_tokens)

    def beyond(self, num_computed: int) -> Supply:
        """The part of the run that is not computed already, from the start of its first chunk."""
        start, first = 0, 0
        while first < len(self.run) and start + self.run[first].num_tokens <= num_computed:
            start += self.run[first].num_tokens
            first += 1
        return Supply(self.run[first:], start, self.run_tokens)


def in_arena(supply: Supply) -> Supply:
    """Its leading part that is there now."""
    entries = supply.entries[: num_on_gpu(supply.entries)]
    tokens = sum(entry.num_tokens for entry in entries)
    return Supply(entries, supply.start, supply.start + tokens)
