"""The copies of a step as one vector, and pinned buffers that are written only when free."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from inferscale_core.kv.pieces import pieces_of
from inferscale_core.vllm_connector import staging
from inferscale_core.vllm_connector.copies import lines_of
from inferscale_core.vllm_connector.staging import HALF, RING_BUFFERS, PinnedRing
from tests.unit.kernels.copy_factory import PAGE, random_copy


@pytest.mark.parametrize("seed", range(20))
def test_lines_hold_the_tokens_of_all_requests_and_a_slot_for_each_group(seed: int) -> None:
    numbers = random.Random(seed)
    made = [random_copy(numbers) for _ in range(numbers.randint(1, 5))]
    expected = np.concatenate([lines for _, lines in made], axis=1)
    assert np.array_equal(lines_of([one for one, _ in made]), expected)


def test_neighbouring_pages_make_one_piece() -> None:
    pieces = np.frombuffer(pieces_of((3, 4, 5, 9), PAGE, 14, 100), dtype=np.int32).reshape(-1, 3)
    assert pieces.tolist() == [[12, 12, 100], [36, 2, 112]]


def test_no_buffer_is_lent_before_the_device_has_read_what_was_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With events that say how much of what was launched they stand behind."""
    lent: list[Any] = []
    done = 0

    class Event:
        behind = 0

        def record(self) -> None:
            self.behind = len(lent)

        def synchronize(self) -> None:
            nonlocal done
            done = max(done, self.behind)

    class Buffer:
        def __init__(self, num_bytes: int) -> None:
            self.bytes = bytearray(num_bytes)

    monkeypatch.setattr(staging, "_new_event", Event)
    monkeypatch.setattr(staging, "_Buffer", Buffer)
    ring = PinnedRing(torch.device("cpu"))
    last_use: dict[int, int] = {}
    for _ in range(5 * RING_BUFFERS):
        before = done
        buffer = ring._next(16)
        assert last_use.get(id(buffer), -1) < done
        assert done == before or len(lent) - done >= HALF, "what was launched last is waited for"
        last_use[id(buffer)] = len(lent)
        lent.append(buffer)
    assert len(last_use) == RING_BUFFERS
    larger = ring._next(len(lent[0].bytes) + 1)
    assert len(larger.bytes) > len(lent[0].bytes)


@pytest.mark.gpu
def test_freed_rows_go_to_a_busy_device_unwaited_for() -> None:
    """A copy from memory that is not pinned would return only when the device has done its work."""
    device = torch.device("cuda")
    ring = PinnedRing(device)
    for _ in range(RING_BUFFERS):
        ring.rows(np.arange(4096))
    busy, done = torch.randn(8192, 8192, device=device), torch.cuda.Event()
    for turn in range(RING_BUFFERS):
        for _ in range(40):
            busy = busy @ busy * 1e-4
        done.record()
        rows = np.arange(turn, 4096)
        sent = ring.rows(rows)
        assert not done.query(), "it was waited for"
        assert np.array_equal(sent.cpu().numpy(), rows)
