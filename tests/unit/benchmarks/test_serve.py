"""How often the benchmark of rates asks, whatever the engine answers."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import serve


class Bench:
    """Answers at once. asked: requests for whole answers, by way."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def request(self, way: str, k: int, client: int, max_tokens: int) -> Any:
        return SimpleNamespace(way=way, max_tokens=max_tokens)

    def ask(self, asks: list[Any]) -> Any:
        if asks[0].max_tokens > 1:
            self.asked[asks[0].way] += len(asks)
        return SimpleNamespace(outputs=[None] * len(asks), seconds=0.5)

    def check(self, way: str, tokens: int, output: object) -> None:
        assert tokens == serve.HEADER_TOKENS + 50 * serve.FACT_TOKENS


@pytest.mark.parametrize("clients", [10, 25, 50, 75, 100, 200])
def test_few_clients_are_asked_as_often_as_many(clients: int) -> None:
    bench: Any = Bench()
    row = serve.throughput(bench, clients, 50, rounds=3)
    assert bench.asked["injected"] == bench.asked["floor"] == clients * row["rounds"]
    assert clients * row["rounds"] >= max(3 * clients, 240)
    assert bench.asked["text"] == clients * (3 if clients < serve.SLOW_CLIENTS else 1)
    assert row["injected"] == clients / 0.5
