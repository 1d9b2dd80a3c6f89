"""Run as a script: the expand kernel makes the lines that its reference makes.

A process of its own, since TRITON_INTERPRET must be set before the kernels are imported.
"""

from __future__ import annotations

import itertools
import random
import sys

import numpy as np
import torch

from inferscale_core.kernels.expand.launch import PIECES_PER_PROGRAM, Expand, expand
from inferscale_core.kernels.paged import FIRST_LINE, as_list
from inferscale_core.vllm_connector.copies import Copy, pack
from inferscale_core.vllm_connector.launches import (
    LIST_NUMBERS,
    GraphLaunch,
    Kernels,
    PlainLaunch,
)
from inferscale_core.vllm_connector.staging import RING_BUFFERS, PinnedRing, plain_lines
from tests.unit.kernels.copy_factory import random_copy
from tests.unit.kernels.guarded import guarded


def check_graphs(copies: list[Copy], num_groups: int, block_size: int) -> None:
    """As a rank does it: out of pinned memory, many steps one behind the other."""
    device = torch.device("cuda")
    kernels = Kernels(Expand(num_groups, block_size), [])
    plain = PlainLaunch(kernels, device)
    plain(copies)
    made = torch.zeros(LIST_NUMBERS, dtype=torch.int64, device=device)
    launch = GraphLaunch(kernels, PinnedRing(device), made, plain)
    parts = [copies[number % len(copies) :] for number in range(3 * RING_BUFFERS)]
    many = []
    for part in parts:
        launch(part)
        many.append(made.clone())
    for part, numbers in zip(parts, many, strict=True):
        assert torch.equal(numbers[: len(wanted := as_list(plain_lines(part)))].cpu(), wanted)


def main() -> None:
    device, numbers = sys.argv[1], random.Random(0)
    count = most = 0
    for num_groups, block_size, num_requests in itertools.product((1, 2, 3), (16, 128), (1, 2, 7)):
        made = [random_copy(numbers, num_groups, block_size) for _ in range(num_requests)]
        # The longest first: programs that are one too many for the others look behind the end.
        made.sort(key=lambda one: one[0].num_pieces, reverse=True)
        copies = [one for one, _ in made]
        packed, shape = pack(copies)
        sent = torch.frombuffer(bytearray(packed), dtype=torch.int32).to(device)
        made_of_it = expand(guarded(sent), shape, block_size).cpu().numpy()
        expected = np.concatenate([wanted for _, wanted in made], axis=1)
        assert made_of_it[0] == shape.num_tokens
        found = made_of_it[FIRST_LINE:].reshape(expected.shape)
        assert np.array_equal(found, expected), (num_groups, block_size, shape)
        if device == "cuda":
            check_graphs(copies, num_groups, block_size)
        count, most = count + 1, max(most, shape.max_pieces)
    assert most > 2 * PIECES_PER_PROGRAM, "several programs were to share a request"
    print(f"{count} steps agree")


if __name__ == "__main__":
    main()
