"""The copies of a step as one list, and pinned buffers that are written only when they are free."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inferscale_core.vllm_connector.metadata import Copy
from inferscale_core.vllm_connector.staging import (
    RING_BUFFERS,
    PinnedRing,
    num_tokens_of,
    write_lines,
)


def copy(start: int, count: int, num_groups: int = 2) -> Copy:
    numbers = np.arange(start, start + count, dtype=np.int64)
    slots = np.stack([numbers + 1000 * (group + 1) for group in range(num_groups)])
    return Copy("handle", np.vstack([numbers, numbers + 100, numbers + 200, slots]))


def test_lines_hold_the_tokens_of_all_requests_and_a_slot_for_each_group() -> None:
    copies = [copy(0, 3), copy(50, 1), copy(7, 2)]
    lines = np.full((5, num_tokens_of(copies)), -9, dtype=np.int64)
    write_lines(copies, lines)
    tokens = np.array([0, 1, 2, 50, 7, 8])
    expected = [tokens, tokens + 100, tokens + 200, tokens + 1000, tokens + 2000]
    assert np.array_equal(lines, np.stack(expected))


@pytest.mark.gpu
def test_a_buffer_is_not_written_while_the_device_still_reads_it() -> None:
    """The device is kept busy, so that copies wait, while the ring goes round several times."""
    device = torch.device("cuda")
    ring = PinnedRing(device, 1)
    busy = torch.randn(4096, 4096, device=device)
    sent = []
    for turn in range(5 * RING_BUFFERS):
        for _ in range(20):
            busy = busy @ busy * 1e-4
        sent.append(ring.to_device([copy(turn * 10_000, 5000, 1)]))
    for turn, lines in enumerate(sent):
        numbers = torch.arange(turn * 10_000, turn * 10_000 + 5000)
        assert torch.equal(lines[0].cpu(), numbers)
        assert torch.equal(lines[3].cpu(), numbers + 1000)
