"""The copies of a step as one list of numbers, and its way to the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inferscale_core.kernels.paged import FIRST_CACHE_LINE
from inferscale_core.vllm_connector.metadata import Copy

Sender = Callable[[Sequence[Copy]], Tensor]
"""Gives the lines of `write_lines`, on the device, in order of the current stream."""

RING_BUFFERS = 4
"""A step fills two at most, and the engine runs at most one step ahead of the device."""


def num_tokens_of(copies: Sequence[Copy]) -> int:
    return sum(copy.num_tokens for copy in copies)


def write_lines(copies: Sequence[Copy], lines: NDArray[np.int64]) -> None:
    """lines: [3 + num_groups, num_tokens], int64: those of the copies, one behind the other."""
    np.concatenate([copy.lines for copy in copies], axis=1, out=lines)


def open_sender(device: torch.device, num_groups: int) -> Sender:
    """num_groups: KV cache groups of every copy."""
    if device.type == "cuda":
        return PinnedRing(device, num_groups).to_device
    return lambda copies: plain_lines(copies, num_groups)


def plain_lines(copies: Sequence[Copy], num_groups: int) -> Tensor:
    """The lines of `write_lines`, in memory of their own."""
    lines = np.empty((FIRST_CACHE_LINE + num_groups, num_tokens_of(copies)), dtype=np.int64)
    write_lines(copies, lines)
    return torch.from_numpy(lines)


class PinnedRing:
    """Pinned buffers, used in turn, from which lists of copies go to the device unwaited for.

    A buffer is written again only when the device has read it, which by then it has long since.
    Called by the rank's own thread.
    """

    def __init__(self, device: torch.device, num_groups: int) -> None:
        self._device = device
        self._num_lines = FIRST_CACHE_LINE + num_groups
        self._buffers = [torch.empty(0, dtype=torch.int64)] * RING_BUFFERS
        self._read = [_new_event() for _ in range(RING_BUFFERS)]
        self._next = 0

    def to_device(self, copies: Sequence[Copy]) -> Tensor:
        """See `Sender`."""
        num_tokens = num_tokens_of(copies)
        turn, self._next = self._next, (self._next + 1) % RING_BUFFERS
        self._read[turn].synchronize()
        staged = self._buffer(turn, self._num_lines * num_tokens)
        lines = staged.view(self._num_lines, num_tokens)
        write_lines(copies, lines.numpy())
        sent = lines.to(self._device, non_blocking=True)
        self._read[turn].record()
        return sent

    def _buffer(self, turn: int, length: int) -> Tensor:
        """Grows to a power of two, so that it seldom does."""
        if self._buffers[turn].numel() < length:
            capacity = 1 << max(length - 1, 1).bit_length()
            self._buffers[turn] = torch.empty(capacity, dtype=torch.int64, pin_memory=True)
        return self._buffers[turn][:length]


def _new_event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
