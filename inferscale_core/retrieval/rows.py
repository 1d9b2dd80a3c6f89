"""Rows of vectors that grow at their end, and the copies of them on the device that searches."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Self
from weakref import WeakKeyDictionary

import torch

_SMALLEST_CAPACITY = 64


class VectorRows:
    """Rows in host memory, float32, shared by versions of one user that differ in their number.

    What is written stays as it is: a version sees the first `num_rows` rows, and later ones append
    behind them. Safe to use from several threads.
    """

    def __init__(self, storage: torch.Tensor, num_written: int) -> None:
        """storage: [capacity, dimension]."""
        self._storage = storage
        self._num_written = num_written
        self._lock = threading.Lock()

    @classmethod
    def of(cls, rows: torch.Tensor) -> Self:
        """A copy of [num_rows, dimension] rows, with room behind them."""
        num_rows, dimension = rows.shape
        storage = torch.empty(max(2 * num_rows, _SMALLEST_CAPACITY), dimension)
        storage[:num_rows] = rows
        return cls(storage, num_rows)

    @property
    def capacity_bytes(self) -> int:
        return self._storage.nbytes

    def empty_copy(self, device: torch.device) -> torch.Tensor:
        """Uninitialised, with the same capacity."""
        return torch.empty_like(self._storage, device=device)

    def first(self, num_rows: int) -> torch.Tensor:
        """[num_rows, dimension], a view."""
        return self._storage[:num_rows]

    def appended(self, num_rows: int, added: torch.Tensor) -> VectorRows:
        """The first `num_rows` rows with others behind them: these very rows, or a copy when there
        is no room or another version has appended already."""
        with self._lock:
            end = num_rows + len(added)
            if num_rows == self._num_written and end <= len(self._storage):
                self._storage[num_rows:end] = added
                self._num_written = end
                return self
        return VectorRows.of(torch.cat([self.first(num_rows), added]))


@dataclass(slots=True)
class _Copy:
    """storage: [capacity, dimension], of which the first `num_rows` rows are filled."""

    storage: torch.Tensor
    num_rows: int


class SearchDevice:
    """Where vectors are searched: a device with room for `max_bytes` of rows, or the host.

    Rows are copied when they are searched, and what they have grown by when they are searched
    again. Those searched longest ago give way. Rows beyond `max_bytes` by themselves are searched
    on the host. Results are the same everywhere. Safe to use from several threads, on the device's
    default stream.
    """

    def __init__(self, device: torch.device, max_bytes: int) -> None:
        """max_bytes: 0 searches everything on the host and leaves the device alone. Otherwise the
        device's libraries are loaded, which takes some 0.1 s once."""
        self._device = device
        self.max_bytes = max_bytes
        # In order of use, the latest last.
        self._copies: WeakKeyDictionary[VectorRows, _Copy] = WeakKeyDictionary()
        self._lock = threading.Lock()
        if max_bytes:
            warm = torch.ones(1, 8, dtype=torch.float64, device=device)
            (warm @ warm.T).cpu()

    @classmethod
    def host(cls) -> Self:
        return cls(torch.device("cpu"), 0)

    @property
    def resident_bytes(self) -> int:
        """Of the copies on the device."""
        return sum(copy.storage.nbytes for copy in list(self._copies.values()))

    def takes(self, rows: VectorRows) -> bool:
        """Whether there is room for them, if need be in place of all others."""
        return rows.capacity_bytes <= self.max_bytes

    def search_rows(self, rows: VectorRows, num_rows: int) -> torch.Tensor:
        """[num_rows, dimension], on the device or the host; to be read only."""
        if not self.takes(rows):
            return rows.first(num_rows)
        with self._lock:
            copy = self._copies.pop(rows, None) or self._new_copy(rows)
            self._copies[rows] = copy
            if num_rows > copy.num_rows:
                missing = slice(copy.num_rows, num_rows)
                copy.storage[missing] = rows.first(num_rows)[missing].to(self._device)
                copy.num_rows = num_rows
            return copy.storage[:num_rows]

    def _new_copy(self, rows: VectorRows) -> _Copy:
        room = self.max_bytes - self.resident_bytes - rows.capacity_bytes
        for oldest in list(self._copies):
            if room >= 0:
                break
            room += self._copies.pop(oldest).storage.nbytes
        return _Copy(rows.empty_copy(self._device), 0)
