"""Memory between pages that nobody may read: a kernel that goes too far ends the process."""

from __future__ import annotations

import ctypes
import mmap

import torch
from torch import Tensor

_MAPPINGS: list[mmap.mmap] = []
"""Kept: a page that cannot be read would be given to others otherwise."""


def guarded(tensor: Tensor) -> Tensor:
    """A contiguous copy whose last byte is the last that can be read; what lies on a device as it
    is. Before its first byte a page that cannot be read is at most a page away."""
    if tensor.device.type != "cpu" or not tensor.nbytes:
        return tensor
    page, num_bytes = mmap.PAGESIZE, tensor.nbytes
    size = -(-num_bytes // page) * page
    memory = mmap.mmap(-1, size + 2 * page)
    _MAPPINGS.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for begin in (address, address + page + size):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin), page, 0) == 0
    copy = torch.frombuffer(
        memory, dtype=torch.uint8, offset=page + size - num_bytes, count=num_bytes
    )
    copy.copy_(tensor.contiguous().flatten().view(torch.uint8))
    return copy.view(tensor.dtype).view(tensor.shape)
