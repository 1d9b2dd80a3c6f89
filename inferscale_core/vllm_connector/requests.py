"""A request as the scheduler side follows it: what of its leading chunks can be supplied.

    spans:   | header | A | B | C | D | E |
    run:     | known in some tier    |        D is unknown: the run ends before it
    on GPU:  | header | A |                   B and C are lower
    computed |≡≡≡|                            the engine's own prefix hit

What the engine has computed need not be supplied, wherever it lies.
"""

from __future__ import annotations

import msgspec

from inferscale_core.ids import ChunkKey
from inferscale_core.kv.directory import ChunkDirectory, leading_on_gpu
from inferscale_core.kv.tiers import Entry, Place
from inferscale_core.memory.spans import Spans
from inferscale_core.vllm_connector.params import RequestParams


class Supply(msgspec.Struct, gc=False):
    """Chunks that can be injected: of prompt tokens [start, end), at their places in the arena."""

    places: list[Place]
    start: int
    end: int


class RequestState(msgspec.Struct, gc=False):
    """covered: prompt tokens that were native hits or injected when it was last scheduled. The
    leading known spans, as of the directory's `run_generation`, hold `run_tokens` tokens; places:
    of their chunks, up to the first that is not in the arena, and run: all of them, looked up only
    when not all spans are in the arena. offered: what the engine was told last."""

    request_id: str
    params: RequestParams
    spans: Spans
    num_span_tokens: int = 0
    covered: int = 0
    num_injected: int = 0
    run: list[Entry] = msgspec.field(default_factory=list)
    run_tokens: int = 0
    places: list[Place] = msgspec.field(default_factory=list)
    is_on_gpu: bool = False
    """Whether the whole run is."""
    run_generation: int = -1
    knew_all_at: int = -1
    """The directory's `num_lost` when all spans were found last."""
    offered: Supply = msgspec.field(default_factory=lambda: Supply([], 0, 0))

    def find_run(self, directory: ChunkDirectory) -> None:
        """Bring the run up to date; a waiting request is asked in every step."""
        if self.run_generation == directory.generation:
            return
        self.run_generation = directory.generation
        places = directory.all_in_arena(self.spans)
        if places is not None:
            self.places, self.run_tokens, self.is_on_gpu = places, self.num_span_tokens, True
            self.knew_all_at = directory.num_lost
            return
        self.run = directory.known_run(self.spans)
        self.run_tokens = sum(self.spans.counts[: len(self.run)])
        self.places = leading_on_gpu(self.run)
        self.is_on_gpu = len(self.places) == len(self.run)

    def still_finds(self, keys: tuple[ChunkKey, ...], directory: ChunkDirectory) -> bool:
        """Whether all keys can be found. Not looked up again when they are the last of the spans
        and nothing was lost since those were found."""
        if self.knew_all_at == directory.num_lost and self.ends_with(keys):
            return True
        return directory.finds_all(keys)

    def ends_with(self, keys: tuple[ChunkKey, ...]) -> bool:
        """Whether these are the last of the spans."""
        spans = self.spans.keys
        return len(keys) <= len(spans) and tuple(spans[len(spans) - len(keys) :]) == keys

    def whole_run(self) -> Supply:
        return Supply(self.places, 0, self.run_tokens)

    def beyond(self, num_computed: int) -> tuple[list[Entry], Supply]:
        """The part of the run that is not computed already, from the start of its first chunk; and
        what of that can be injected now."""
        start, first = 0, 0
        while first < len(self.run) and start + self.run[first].num_tokens <= num_computed:
            start += self.run[first].num_tokens
            first += 1
        wanted = self.run[first:]
        places = leading_on_gpu(wanted)
        tokens = sum(place.entry.num_tokens for place in places)
        return wanted, Supply(places, start, start + tokens)
