"""What a step sends to the device: its copies as one list of numbers, and rows that were freed.

Nothing here waits for the device: a copy from memory that is not pinned would wait for all that was
launched before it, and so end the overlap of one step's work on the device with the next one's on
the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inferscale_core.vllm_connector.copies import Copy, lines_of, pack, packed_shape

if TYPE_CHECKING:
    from inferscale_core.kernels.expand.launch import Expand

Sender = Callable[[Sequence[Copy]], Tensor]
"""Gives the lines of `copies.lines_of`, on the device, in order of the current stream."""

RowSender = Callable[[NDArray[np.int64]], Tensor]
"""Gives the same rows, int64, on the device, in order of the current stream."""

RING_BUFFERS = 4
"""A step fills two at most, and the engine runs at most one step ahead of the device."""


def open_sender(device: torch.device) -> Sender:
    return PinnedRing(device).lines if device.type == "cuda" else plain_lines


def open_row_sender(device: torch.device) -> RowSender:
    return PinnedRing(device).rows if device.type == "cuda" else torch.from_numpy


def plain_lines(copies: Sequence[Copy]) -> Tensor:
    """The lines, on the CPU."""
    return torch.from_numpy(lines_of(copies))


class PinnedRing:
    """Pinned buffers, used in turn, from which numbers go to the device unwaited for.

    A buffer is written again only when the device has read it, which by then it has long since.
    Called by the rank's own thread.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers = [torch.empty(0, dtype=torch.int32)] * RING_BUFFERS
        self._read = [_new_event() for _ in range(RING_BUFFERS)]
        self._next = 0
        self._expand: Expand | None = None

    def lines(self, copies: Sequence[Copy]) -> Tensor:
        """See `Sender`."""
        shape = packed_shape(copies)
        packed = self._send(shape.length, lambda staged: pack(copies, shape, staged))
        if self._expand is None:
            from inferscale_core.kernels.expand.launch import Expand

            self._expand = Expand(shape.num_groups, copies[0].block_size)
        return self._expand(packed, shape)

    def rows(self, rows: NDArray[np.int64]) -> Tensor:
        """See `RowSender`; below `pieces.MAX_ROWS`, as all are."""
        return self._send(
            len(rows), lambda staged: np.copyto(staged, rows, casting="same_kind")
        ).long()

    def _send(self, length: int, write: Callable[[NDArray[np.int32]], None]) -> Tensor:
        """[length], int32, on the device; `write` fills a buffer of that length."""
        turn, self._next = self._next, (self._next + 1) % RING_BUFFERS
        self._read[turn].synchronize()
        staged = self._buffer(turn, length)
        write(staged.numpy())
        sent = staged.to(self._device, non_blocking=True)
        self._read[turn].record()
        return sent

    def _buffer(self, turn: int, length: int) -> Tensor:
        """Grows to a power of two, so that it seldom does."""
        if self._buffers[turn].numel() < length:
            capacity = 1 << max(length - 1, 1).bit_length()
            self._buffers[turn] = torch.empty(capacity, dtype=torch.int32, pin_memory=True)
        return self._buffers[turn][:length]


def _new_event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
