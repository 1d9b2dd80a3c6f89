"""Run as a script: the expand kernel makes the lines that its reference makes.

A process of its own, since TRITON_INTERPRET must be set before the kernels are imported.
"""

from __future__ import annotations

import itertools
import random
import sys

import numpy as np
import torch

from inferscale_core.kernels.expand.launch import PIECES_PER_PROGRAM, expand
from inferscale_core.vllm_connector.copies import pack
from inferscale_core.vllm_connector.staging import RING_BUFFERS, PinnedRing, plain_lines
from tests.unit.kernels.copy_factory import random_copy
from tests.unit.kernels.guarded import guarded


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
        lines = expand(guarded(sent), shape, block_size)
        expected = np.concatenate([wanted for _, wanted in made], axis=1)
        assert np.array_equal(lines.cpu().numpy(), expected), (num_groups, block_size, shape)
        if device == "cuda":
            # As a rank does it: out of pinned memory, many steps one behind the other.
            ring = PinnedRing(torch.device(device))
            parts = [copies[number % len(copies) :] for number in range(3 * RING_BUFFERS)]
            many = [ring.lines(part).tensor(num_groups).clone() for part in parts]
            for part, made_of_it in zip(parts, many, strict=True):
                assert torch.equal(made_of_it.cpu(), plain_lines(part)), (num_groups, shape)
        count, most = count + 1, max(most, shape.max_pieces)
    assert most > 2 * PIECES_PER_PROGRAM, "several programs were to share a request"
    print(f"{count} steps agree")


if __name__ == "__main__":
    main()
