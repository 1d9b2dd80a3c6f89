"""A step's kernels as one graph for each buffer, and what does not fit, kernel by kernel."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from inferscale_core.kernels.paged import FIRST_LINE
from inferscale_core.vllm_connector import launches
from inferscale_core.vllm_connector.copies import Copy, pack
from inferscale_core.vllm_connector.launches import (
    FEW,
    FEW_TOKENS,
    LIST_NUMBERS,
    MANY,
    GraphLaunch,
    Kernels,
    PlainLaunch,
    Programs,
    open_launches,
)
from inferscale_core.vllm_connector.staging import BUFFER_BYTES, RING_BUFFERS, PinnedRing
from tests.unit.kernels.copy_factory import random_copy

CPU = torch.device("cpu")
BLOCK = 16


class Launched:
    """In place of a kernel: keeps what it was launched with."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> None:
        self.seen.append(arguments)


class Graph:
    """Reads its buffer when it is replayed, as a device does."""

    def __init__(self, buffer: torch.Tensor, programs: Programs, log: list[Any]) -> None:
        self._buffer, self._programs, self._log = buffer, programs, log

    def replay(self) -> None:
        self._log.append((self._programs, self._buffer.numpy().tobytes()))


class Ring:
    def __init__(self) -> None:
        self.buffers = [torch.zeros(BUFFER_BYTES // 4, dtype=torch.int32) for _ in range(3)]
        self._turn = -1

    def fill(self, content: bytes) -> int:
        self._turn = (self._turn + 1) % len(self.buffers)
        self.buffers[self._turn].numpy().data.cast("B")[: len(content)] = content
        return self._turn


def copy_of(num_tokens: int, num_pieces: int = 1, first_row: int = 0) -> Copy:
    piece = np.array([first_row, num_tokens // num_pieces, 0], dtype=np.int32).tobytes()
    return Copy("", 0, num_tokens, piece * num_pieces, ([1] * -(-num_tokens // BLOCK),), BLOCK)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Programs and content of the buffer at each replay."""
    log: list[Any] = []
    monkeypatch.setattr(
        launches, "_graph", lambda kernels, buffer, copies, programs: Graph(buffer, programs, log)
    )
    return log


def graph_launch(plain: Launched) -> GraphLaunch:
    ring: Any = Ring()
    any_plain: Any = plain
    return GraphLaunch(Kernels(Launched(), []), ring, torch.zeros(1), any_plain)


@pytest.mark.parametrize(
    ("num_tokens", "programs"), [(1, FEW), (FEW_TOKENS, FEW), (FEW_TOKENS + 1, MANY), (5000, MANY)]
)
def test_a_step_replays_the_graph_of_the_buffer_that_it_filled(
    replayed: list[Any], num_tokens: int, programs: Programs
) -> None:
    plain = Launched()
    launch = graph_launch(plain)
    for index in range(5):
        copies = [copy_of(num_tokens, first_row=index)]
        launch(copies)
        packed, _ = pack(copies)
        seen_programs, seen = replayed[-1]
        assert seen_programs == programs
        assert seen[: len(packed)] == packed
    assert len(replayed) == 5
    assert not plain.seen


@pytest.mark.parametrize(
    "copies",
    [
        [copy_of(LIST_NUMBERS // 4)],
        [copy_of(BUFFER_BYTES // 12, num_pieces=BUFFER_BYTES // 12)],
    ],
    ids=["more tokens than the list", "more pieces than a buffer"],
)
def test_a_step_that_fits_no_buffer_is_launched_plainly(
    replayed: list[Any], copies: list[Copy]
) -> None:
    plain = Launched()
    launch = graph_launch(plain)
    launch(copies)
    assert plain.seen == [(copies,)]
    assert not replayed
    launch([copy_of(3)])
    assert len(replayed) == 1, "and the next one is not"


def test_kernels_run_in_their_order_on_one_list() -> None:
    order: list[tuple[str, Any]] = []

    def kernel(name: str) -> Any:
        return lambda *arguments: order.append((name, arguments))

    kernels = Kernels(kernel("expand"), [kernel("full"), kernel("window")])
    copies = [copy_of(7)]
    PlainLaunch(kernels, CPU, Programs(expand=5, tokens=6))(copies)
    (_, (packed, made, expanding)), (first, full), (second, window) = order
    assert packed.numpy().tobytes() == pack(copies)[0]
    assert expanding == 5
    assert (first, second) == ("full", "window")
    for seen, programs in (full, window):
        assert seen is made
        assert programs == 6
    assert len(made) == FIRST_LINE + 4 * 7


def test_kernels_are_launched_once_before_any_request_is() -> None:
    kernels = [Launched(), Launched()]
    opened = open_launches([Kernels(k, []) for k in kernels], CPU, copy_of(1))
    assert [len(k.seen) for k in kernels] == [1, 1]
    opened[1]([copy_of(2)])
    assert [len(k.seen) for k in kernels] == [1, 2]


@pytest.mark.gpu
def test_a_buffer_is_not_written_while_the_device_still_reads_it() -> None:
    """The device is kept busy, so that steps wait, while the ring goes round several times."""
    from inferscale_core.kernels.expand.launch import Expand
    from inferscale_core.kernels.paged import as_list

    device, numbers = torch.device("cuda"), random.Random(0)
    kernels = Kernels(Expand(2, BLOCK), [])
    plain = PlainLaunch(kernels, device)
    plain([random_copy(numbers)[0]])
    made = torch.zeros(LIST_NUMBERS, dtype=torch.int64, device=device)
    launch = GraphLaunch(kernels, PinnedRing(device), made, plain)
    busy = torch.randn(4096, 4096, device=device)
    sent = []
    for _ in range(5 * RING_BUFFERS):
        for _ in range(20):
            busy = busy @ busy * 1e-4
        copies = [random_copy(numbers) for _ in range(40)]
        expected = np.concatenate([lines for _, lines in copies], axis=1)
        launch([one for one, _ in copies])
        sent.append((made.clone(), as_list(torch.from_numpy(expected))))
    for found, expected in sent:
        assert torch.equal(found[: len(expected)].cpu(), expected)
