"""Run as a script: the expand kernel makes the lines that its reference makes.

A process of its own, since TRITON_INTERPRET must be set before the kernels are imported.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import random
import sys

import numpy as np
import torch
from torch import Tensor

from inferscale_core.kernels.expand.launch import PIECES_PER_PROGRAM, expand
from inferscale_core.vllm_connector.copies import pack
from inferscale_core.vllm_connector.staging import RING_BUFFERS, PinnedRing, plain_lines
from tests.unit.kernels.copy_factory import random_copy

_MAPPINGS: list[mmap.mmap] = []
"""Kept: a page that cannot be read would be given to others otherwise."""


def guarded(numbers: bytes) -> Tensor:
    """int32, in host memory behind which a page begins that nobody may read."""
    size = -(-len(numbers) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    _MAPPINGS.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + size), mmap.PAGESIZE, 0) == 0
    memory[size - len(numbers) : size] = numbers
    offset, count = size - len(numbers), len(numbers) // 4
    return torch.frombuffer(memory, dtype=torch.int32, offset=offset, count=count)


def main() -> None:
    device, numbers = sys.argv[1], random.Random(0)
    count = most = 0
    for num_groups, block_size, num_requests in itertools.product((1, 2, 3), (16, 128), (1, 2, 7)):
        made = [random_copy(numbers, num_groups, block_size) for _ in range(num_requests)]
        # The longest first: programs that are one too many for the others look behind the end.
        made.sort(key=lambda one: one[0].num_pieces, reverse=True)
        copies = [one for one, _ in made]
        packed, shape = pack(copies)
        lines = expand(guarded(packed).to(device), shape, block_size)
        expected = np.concatenate([wanted for _, wanted in made], axis=1)
        assert np.array_equal(lines.cpu().numpy(), expected), (num_groups, block_size, shape)
        if device == "cuda":
            # As a rank does it: out of pinned memory, many steps one behind the other.
            ring = PinnedRing(torch.device(device))
            parts = [copies[number % len(copies) :] for number in range(3 * RING_BUFFERS)]
            many = [ring.lines(part) for part in parts]
            for part, made_of_it in zip(parts, many, strict=True):
                assert torch.equal(made_of_it.cpu(), plain_lines(part)), (num_groups, shape)
        count, most = count + 1, max(most, shape.max_pieces)
    assert most > 2 * PIECES_PER_PROGRAM, "several programs were to share a request"
    print(f"{count} steps agree")


if __name__ == "__main__":
    main()
