"""Later launches go to the variant that the first one found, with the arguments in their order."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from inferscale_core.kernels.launching import Prepared


class Kernel:
    """As Triton's: launched by name of constants, and gives the variant it was compiled to."""

    arg_names = ("first", "own", "last", "SIZE", "NAME")

    def __init__(self, *, has_variants: bool = True) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self._has_variants = has_variants

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(*arguments: Any, num_warps: int, **constants: Any) -> Any:
            in_order = [constants[name] for name in self.arg_names if name in constants]
            self.launches.append(("kernel", grid, num_warps, *arguments, *in_order))
            return Variant(self.launches) if self._has_variants else None

        return launch


class Variant:
    def __init__(self, launches: list[tuple[Any, ...]]) -> None:
        self._launches = launches

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments: self._launches.append(("variant", grid, *arguments))


CONSTANTS = {"NAME": "n", "SIZE": 8}


def test_the_first_launch_finds_what_later_ones_use() -> None:
    kernel = Kernel()
    prepared = Prepared(kernel, CONSTANTS, num_warps=4)
    for own in range(3):
        prepared((own + 1, 2), "first", own, "last")
    assert kernel.launches == [
        ("kernel", (1, 2), 4, "first", 0, "last", 8, "n"),
        ("variant", (2, 2, 1), "first", 1, "last", 8, "n"),
        ("variant", (3, 2, 1), "first", 2, "last", 8, "n"),
    ]


def test_what_is_the_same_in_every_launch_stands_around_the_rest_tensors_by_their_address() -> None:
    kernel, rows = Kernel(), torch.zeros(4)
    prepared = Prepared(kernel, CONSTANTS, num_warps=4, before=(rows, 3), behind=(5, "last"))
    for own in range(2):
        prepared((1, 2), own)
    first, later = kernel.launches
    assert first[3] is rows
    assert first[4:] == (3, 0, 5, "last", 8, "n")
    assert later == ("variant", (1, 2, 1), rows.data_ptr(), 3, 1, 5, "last", 8, "n")


def test_tensors_of_every_launch_live_as_long_as_their_addresses_are_used() -> None:
    kernel, rows = Kernel(), torch.zeros(4)
    gone = weakref.ref(rows)
    prepared = Prepared(kernel, CONSTANTS, num_warps=4, before=(rows,))
    del rows
    kernel.launches.clear()
    assert gone() is not None
    del prepared
    assert gone() is None


def test_without_variants_every_launch_is_the_kernel_s() -> None:
    kernel = Kernel(has_variants=False)
    prepared = Prepared(kernel, CONSTANTS, num_warps=4)
    for own in range(2):
        prepared((1, 1), "first", own, "last")
    assert [launch[0] for launch in kernel.launches] == ["kernel", "kernel"]
