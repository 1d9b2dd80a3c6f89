"""What a step sends to the device: its copies, packed, and rows that were freed.

Neither waits for the device, but to take more memory for more rows than ever: a copy from memory
that is not pinned would wait for all that was launched before it, and so end the overlap of one
step's work on the device with the next one's on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inferscale_core.vllm_connector.copies import Copy, lines_of

RowSender = Callable[[NDArray[np.int64]], Tensor]
"""Gives the same rows, int64, on the device, in order of the current stream."""

RING_BUFFERS = 16
"""A step fills two at most, and the engine runs at most one step ahead of the device, so neither
half is waited for."""

HALF = RING_BUFFERS // 2
BUFFER_BYTES = 1 << 18
"""Of each buffer: more than 500 encode requests behind 32 facts need in a step."""


def open_row_sender(device: torch.device) -> RowSender:
    return PinnedRing(device).rows if device.type == "cuda" else torch.from_numpy


def plain_lines(copies: Sequence[Copy]) -> Tensor:
    """The lines, on the CPU."""
    return torch.from_numpy(lines_of(copies))


class PinnedRing:
    """Pinned buffers, used in turn, out of which the device takes numbers unwaited for.

    A buffer is written again only when the device has read it, which by then it has long since;
    that is asked for half of them at a time. They are kept as long as kernels may run, as torch
    does not know that these read them. Called by the rank's own thread, always on one stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers = [_Buffer(BUFFER_BYTES) for _ in range(RING_BUFFERS)]
        self._read = [_new_event() for _ in range(2)]
        self._turn = RING_BUFFERS - 1

    @property
    def buffers(self) -> list[Tensor]:
        """int32, pinned, in the order in which they are lent; the same ones as long as none is to
        hold more than BUFFER_BYTES."""
        return [buffer.numbers for buffer in self._buffers]

    def fill(self, content: bytes) -> int:
        """The number of the buffer that holds it now. For kernels that read it where it is: so few
        numbers are across the bus sooner than a copy of them is begun."""
        assert len(content) <= BUFFER_BYTES, "graphs would go on reading the smaller buffer"
        self._next(len(content)).bytes[: len(content)] = content
        return self._turn

    def rows(self, rows: NDArray[np.int64]) -> Tensor:
        """See `RowSender`; below `pieces.MAX_ROWS`, as all are."""
        buffer = self._next(4 * len(rows))
        numbers = buffer.numbers[: len(rows)]
        np.copyto(numbers.numpy(), rows, casting="same_kind")
        return numbers.to(self._device, non_blocking=True).long()

    def _next(self, num_bytes: int) -> _Buffer:
        """The buffer whose turn it is: the device has read it, and it is large enough. More memory
        is taken when needed, which may wait for the device."""
        self._turn = (self._turn + 1) % RING_BUFFERS
        half, within = divmod(self._turn, HALF)
        if within == 0:
            self._read[1 - half].record()  # Behind all that was launched to read the other half.
            self._read[half].synchronize()
        if len(self._buffers[self._turn].bytes) < num_bytes:
            self._buffers[self._turn] = _Buffer(num_bytes)
        return self._buffers[self._turn]


class _Buffer:
    """numbers: int32, pinned, a power of two of them, so that few are too short. bytes: the same
    memory."""

    def __init__(self, num_bytes: int) -> None:
        """num_bytes: at least so many."""
        length = 1 << max(num_bytes // 4 - 1, 1).bit_length()
        self.numbers = torch.empty(length, dtype=torch.int32, pin_memory=True)
        self.bytes = self.numbers.numpy().data.cast("B")


def _new_event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]
