"""What an update reaches, by bound: `python -m benchmarks.cascade --data FOLDER`.

Needs no engine. A user's chunks are those of `UserSnapshot`, with vectors of the packaged embedder,
so what is counted is what the service would drop and encode again. FOLDER holds LoCoMo. 300 facts
are those of its longest conversation. 10,000 are the facts of all conversations over and over, each
time told of other people: the speakers' names are replaced, and the embedder reads the new text.

One update a minute replaces a fact drawn at random by one whose vector is a little off, and moves
it to the end. **How long encoding takes is modelled**, not measured: a wave takes `--wave-ms`, or
longer when its facts pass `--facts-per-s`; what a chunk sees as text is prefilled at
`--text-tokens-per-s`.

With `--chapters` it goes through chapters of these lengths, and none, in place of the other bounds;
with `--mixed` the statements come in an order drawn at random as well.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import write
from benchmarks.rows import make_rows, replace_rows
from inferscale_core.embedding import Embedder, load_embedder
from inferscale_core.ids import ChunkKey, FactId, ModelRevision, RecipeHash, TenantId, UserId
from inferscale_core.memory.canonical import ChunkSpec, dependants, header_key, user_scope
from inferscale_core.memory.facts import FactRef
from inferscale_core.memory.recipes import Recipe
from inferscale_core.memory.waves import next_wave
from inferscale_core.retrieval import (
    ChunkRules,
    FactEntry,
    MemoryDelta,
    SearchDevice,
    UserSnapshot,
)
from inferscale_core.settings import EmbedderSettings
from services.evaluation.dataset import Conversation
from services.evaluation.locomo import load_locomo
from services.evaluation.retold import retold

COUNTS = (300, 10_000)
UPDATES = (200, 15)
"""Minutes that are gone through, for each count."""

NEIGHBOURS = (32, 16)
WINDOWS = (256, 1024, None)
DEPTHS = (4, 8, 16, None)
MINUTE_S = 60.0
HEADER_TOKENS = 34
MAX_PROMPT_TOKENS = 8191
DELETES = 200
"""Facts of which the closure of a delete is counted."""

UPDATE_COSINE = 0.95
"""Of an updated fact's vector and the old one's."""


class Order(StrEnum):
    """arrival: conversation after conversation. mixed: as if a memory's subjects had no time."""

    ARRIVAL = "arrival"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    occurred_at: datetime | None


@dataclass(frozen=True, slots=True)
class EncodeRate:
    """How long a wave is taken to last: a model of an engine."""

    wave_ms: float
    facts_per_s: float
    text_tokens_per_s: float

    def wave_s(self, num_facts: int, text_tokens: int) -> float:
        busy_s = num_facts / self.facts_per_s + text_tokens / self.text_tokens_per_s
        return max(self.wave_ms / 1e3, busy_s)


@dataclass(frozen=True, slots=True)
class Minute:
    """fact_seconds: facts without a chunk, over time. busy_s: until all have one; a minute at most.
    num_waves, text_tokens: of what was encoded in it."""

    fact_seconds: float
    busy_s: float
    num_waves: int
    text_tokens: int


def statements(conversations: Sequence[Conversation], count: int) -> list[Statement]:
    """In order of arrival. Raises ValueError without a conversation that has facts."""
    longest = max(conversations, key=lambda conversation: len(conversation.facts))
    if count <= len(longest.facts):
        return [Statement(fact.text, fact.occurred_at) for fact in longest.facts[:count]]
    return list(itertools.islice(_told_of_others(conversations), count))


def _told_of_others(conversations: Sequence[Conversation]) -> Iterator[Statement]:
    """All facts as they are, then again and again of other people: no fact comes twice before the
    names of a conversation do, in the eighth round."""
    if not any(conversation.facts for conversation in conversations):
        raise ValueError("no conversation has facts")
    for conversation in conversations:
        for fact in conversation.facts:
            yield Statement(fact.text, fact.occurred_at)
    for number in itertools.count():
        for place, conversation in enumerate(conversations):
            for fact in retold(conversation, place + number):
                yield Statement(fact.text, fact.occurred_at)


def chunk_rules(recipe: Recipe) -> ChunkRules:
    model = ModelRevision("cascade@1")
    return ChunkRules(
        model_revision=model,
        recipe=recipe,
        header_key=header_key(model, RecipeHash(recipe.hash), range(HEADER_TOKENS)),
        header_tokens=HEADER_TOKENS,
        max_prompt_tokens=MAX_PROMPT_TOKENS,
    )


class User:
    """One user's memory, who updates it. vectors: [num_facts, dimension] of the statements."""

    def __init__(
        self, lines: Sequence[str], num_tokens: Sequence[int], vectors: torch.Tensor, recipe: Recipe
    ) -> None:
        self._rng = random.Random(0)
        self._noise = torch.Generator().manual_seed(0)
        scope = user_scope(TenantId("benchmark"), UserId("someone"))
        empty = UserSnapshot.empty(
            scope, chunk_rules(recipe), vectors.shape[1], SearchDevice.host()
        )
        facts = tuple(
            FactEntry(FactRef(FactId(f"fact-{i:06}"), 1), i + 1, line, tuple(range(length)))
            for i, (line, length) in enumerate(zip(lines, num_tokens, strict=True))
        )
        self.vector_by_id = {fact.fact_id: row for fact, row in zip(facts, vectors, strict=True)}
        self.snapshot = empty.apply(MemoryDelta(len(facts), 0, facts, vectors))

    def update(self) -> FactId:
        """Replace a fact drawn at random, as `UserSnapshot` follows it."""
        fact = self._rng.choice(list(self.snapshot.facts.values()))
        version = self.snapshot.memory_version + 1
        ref = FactRef(fact.fact_id, fact.ref.revision + 1)
        entry = FactEntry(ref, version, f"{fact.text} {ref.revision}", fact.token_ids)
        vector = self._moved(self.vector_by_id[fact.fact_id])
        self.vector_by_id[fact.fact_id] = vector
        self.snapshot = self.snapshot.apply(MemoryDelta(version, version, (entry,), vector[None]))
        return fact.fact_id

    def _moved(self, vector: torch.Tensor) -> torch.Tensor:
        """A unit vector at `UPDATE_COSINE` to this one, in a random direction."""
        noise = torch.randn(vector.shape, generator=self._noise)
        across = torch.nn.functional.normalize(noise - noise.dot(vector) * vector, dim=0)
        moved = UPDATE_COSINE * vector + (1 - UPDATE_COSINE**2) ** 0.5 * across
        return torch.nn.functional.normalize(moved, dim=0)


def encode_for_a_minute(
    snapshot: UserSnapshot, resident: set[ChunkKey], rate: EncodeRate
) -> Minute:
    """Encode what is missing, wave by wave; what a minute is too short for stays missing."""
    missing = [spec for spec in snapshot.specs.values() if spec.key not in resident]
    clock_s = fact_seconds = 0.0
    num_waves = num_text = 0
    while missing:
        wave = next_wave(missing, resident)
        text_tokens = sum(_text_tokens(snapshot, spec) for spec in wave)
        wave_s = rate.wave_s(len(wave), text_tokens)
        if clock_s + wave_s > MINUTE_S:
            return Minute(
                fact_seconds + len(missing) * (MINUTE_S - clock_s), MINUTE_S, num_waves, num_text
            )
        clock_s += wave_s
        fact_seconds += len(missing) * wave_s
        num_waves += 1
        num_text += text_tokens
        resident.update(spec.key for spec in wave)
        missing = [spec for spec in missing if spec.key not in resident]
    return Minute(fact_seconds, clock_s, num_waves, num_text)


def _text_tokens(snapshot: UserSnapshot, spec: ChunkSpec) -> int:
    """Tokens of earlier facts that the chunk sees as text."""
    if spec.prefix_keys:
        return 0
    return sum(len(snapshot.facts[ref.fact_id].token_ids) for ref in spec.prefix_facts)


def measure(user: User, updates: int, rate: EncodeRate) -> dict[str, Any]:
    """Closures are shares of the user's facts, the fact itself included."""
    resident = {spec.key for spec in user.snapshot.specs.values()}
    num_facts = len(user.snapshot.facts)
    deleted = _delete_closures(user.snapshot)
    dropped, minutes, apply_s = [], [], []
    for _ in range(updates):
        before = {spec.key for spec in user.snapshot.specs.values()}
        started = time.perf_counter()
        user.update()
        apply_s.append(time.perf_counter() - started)
        wanted = {spec.key for spec in user.snapshot.specs.values()}
        dropped.append(len(wanted - before))
        resident &= wanted
        minutes.append(encode_for_a_minute(user.snapshot, resident, rate))
    num_roots = sum(
        bool(spec.prefix_facts) and not spec.prefix_keys for spec in user.snapshot.specs.values()
    )
    return {
        "delete_closure": round(statistics.mean(deleted) / num_facts, 4),
        "update_closure": round(statistics.mean(dropped) / num_facts, 4),
        "update_closure_max": round(max(dropped) / num_facts, 4),
        "depth": max(spec.depth for spec in user.snapshot.specs.values()),
        "see_text": round(num_roots / num_facts, 4),
        "waves": round(statistics.mean(minute.num_waves for minute in minutes), 1),
        "text_tokens": round(statistics.mean(minute.text_tokens for minute in minutes)),
        "busy_s": round(statistics.mean(minute.busy_s for minute in minutes), 3),
        "served_as_text": round(
            sum(minute.fact_seconds for minute in minutes) / (MINUTE_S * updates * num_facts), 5
        ),
        "still_missing": num_facts - len(resident),
        "apply_ms": round(statistics.median(apply_s) * 1e3, 1),
    }


def _delete_closures(snapshot: UserSnapshot) -> list[int]:
    specs = list(snapshot.specs.values())
    sample = random.Random(1).sample(list(snapshot.facts), min(DELETES, len(snapshot.facts)))
    return [1 + len(dependants([fact_id], specs)) for fact_id in sample]


def seen_of_others(user: User) -> dict[str, Any]:
    """What a bound leaves to see. similarity: mean cosine of a fact and the earlier facts in its
    prefix. see_few: share of the facts that have less than half of the neighbours wanted."""
    snapshot = user.snapshot
    half = snapshot.rules.recipe.num_neighbours / 2
    prefixes = {i: [ref.fact_id for ref in s.prefix_facts] for i, s in snapshot.specs.items()}
    vectors = user.vector_by_id
    means = [
        float((torch.stack([vectors[seen] for seen in prefix]) @ vectors[fact_id]).mean())
        for fact_id, prefix in prefixes.items()
        if prefix
    ]
    few = sum(len(prefix) < half for prefix in prefixes.values())
    return {
        "similarity": round(statistics.mean(means), 3),
        "see_few": round(few / len(prefixes), 4),
    }


def recipe_for(
    num_neighbours: int,
    newest: int | None = None,
    depth: int | None = None,
    chapter: int | None = None,
) -> Recipe:
    return Recipe(
        "cascade",
        num_neighbours=num_neighbours,
        newest_facts=newest,
        max_depth=depth,
        chapter=chapter,
    )


def bounded_recipes(neighbours: Sequence[int]) -> list[Recipe]:
    return [recipe_for(*bounds) for bounds in itertools.product(neighbours, WINDOWS, DEPTHS)]


def chaptered_recipes(neighbours: Sequence[int], chapters: Sequence[int]) -> list[Recipe]:
    lengths = itertools.product(neighbours, (*chapters, None))
    return [recipe_for(count, chapter=chapter) for count, chapter in lengths]


def run(
    conversations: Sequence[Conversation],
    embedder: Embedder,
    counts: Sequence[int],
    minutes: Sequence[int],
    rate: EncodeRate,
    recipes: Sequence[Recipe],
    *,
    orders: Sequence[Order] = (Order.ARRIVAL,),
) -> Iterator[dict[str, Any]]:
    sizes = zip(counts, minutes, strict=True)
    for (count, updates), order in itertools.product(sizes, orders):
        told = statements(conversations, count)
        if order is Order.MIXED:
            random.Random(0).shuffle(told)
        lines = [recipes[0].render(s.text, s.occurred_at) for s in told]
        vectors = torch.from_numpy(embedder.embed(lines))
        num_tokens = [embedder.count_tokens(line) for line in lines]
        for recipe in recipes:
            if max(recipe.newest_facts or 0, recipe.chapter or 0) > count:
                continue
            started = time.perf_counter()
            user = User(lines, num_tokens, vectors, recipe)
            build_s = time.perf_counter() - started
            yield {
                "facts": count,
                "order": order.value,
                "neighbours": recipe.num_neighbours,
                "newest_facts": recipe.newest_facts,
                "max_depth": recipe.max_depth,
                "chapter": recipe.chapter,
                **seen_of_others(user),
                "updates": updates,
                "wave_ms": rate.wave_ms,
                "facts_per_s": rate.facts_per_s,
                "text_tokens_per_s": rate.text_tokens_per_s,
                **measure(user, updates, rate),
                "build_s": round(build_s, 2),
            }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of LoCoMo's *.json")
    parser.add_argument("--facts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--neighbours", type=int, nargs="+", default=list(NEIGHBOURS))
    parser.add_argument("--chapters", type=int, nargs="+", help="in place of the other bounds")
    parser.add_argument("--mixed", action="store_true", help="in an order drawn at random as well")
    parser.add_argument("--updates", type=int, nargs="+", default=list(UPDATES))
    parser.add_argument("--wave-ms", type=float, default=12.0)
    parser.add_argument("--facts-per-s", type=float, default=300.0)
    parser.add_argument("--text-tokens-per-s", type=float, default=45_000.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rate = EncodeRate(options.wave_ms, options.facts_per_s, options.text_tokens_per_s)
    if options.chapters:
        recipes = chaptered_recipes(options.neighbours, options.chapters)
    else:
        recipes = bounded_recipes(options.neighbours)
    embedder = load_embedder(EmbedderSettings(device="cpu"))
    figures = []
    for figure in run(
        load_locomo(options.data),
        embedder,
        options.facts,
        options.updates,
        rate,
        recipes,
        orders=list(Order) if options.mixed else [Order.ARRIVAL],
    ):
        print(figure, flush=True)
        figures.append(figure)
    benchmark = "chapters" if options.chapters else "cascade"
    replace_rows(make_rows(benchmark, figures, embedder=embedder.identity.embedder_id))
    return write()


if __name__ == "__main__":
    raise SystemExit(main())
