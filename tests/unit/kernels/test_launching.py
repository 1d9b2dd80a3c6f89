"""Later launches go to the variant that the first one found, with the arguments in their order."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

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
    function, packed_metadata = "function", "metadata"

    def __init__(self, launches: list[tuple[Any, ...]]) -> None:
        self._launches = launches

    def run(self, x: int, y: int, z: int, *arguments: Any) -> None:
        self._launches.append(("variant", (x, y, z), *arguments))


class NotLoaded(triton.compiler.CompiledKernel):
    """Has nothing to unload."""

    def __del__(self) -> None: ...


CONSTANTS = {"NAME": "n", "SIZE": 8}
DEVICE, STREAM = 3, 30
LAUNCHED_WITH = (STREAM, "function", "metadata", None, None, None)
"""What Triton's launcher is told before a kernel's own arguments: no hooks are called."""


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device and its stream."""
    active = SimpleNamespace(
        get_current_device=lambda: DEVICE, get_current_stream={DEVICE: STREAM}.__getitem__
    )
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))


def test_the_first_launch_finds_what_later_ones_use() -> None:
    kernel = Kernel()
    prepared = Prepared(kernel, CONSTANTS, num_warps=4)
    for own in range(3):
        prepared((own + 1, 2), "first", own, "last")
    assert kernel.launches == [
        ("kernel", (1, 2), 4, "first", 0, "last", 8, "n"),
        ("variant", (2, 2, 1), *LAUNCHED_WITH, "first", 1, "last", 8, "n"),
        ("variant", (3, 2, 1), *LAUNCHED_WITH, "first", 2, "last", 8, "n"),
    ]


def test_what_is_the_same_in_every_launch_stands_around_the_rest_tensors_by_their_address() -> None:
    kernel, rows, own = Kernel(), torch.zeros(4), torch.zeros(2)
    prepared = Prepared(kernel, CONSTANTS, num_warps=4, before=(rows, 3), behind=(5, "last"))
    for _ in range(2):
        prepared((1, 2), own)
    first, later = kernel.launches
    assert first[3] is rows
    assert first[4] == 3
    assert first[5] is own
    assert first[6:] == (5, "last", 8, "n")
    addresses = (rows.data_ptr(), 3, own.data_ptr())
    assert later == ("variant", (1, 2, 1), *LAUNCHED_WITH, *addresses, 5, "last", 8, "n")


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


def test_a_variant_is_launched_as_triton_itself_launches_it_but_for_the_hooks() -> None:
    launches: list[tuple[Any, ...]] = []
    compiled = object.__new__(NotLoaded)
    compiled.module, compiled.function, compiled.packed_metadata = "module", "function", "metadata"
    compiled.name, compiled.src = "name", SimpleNamespace()
    compiled._run = lambda *arguments: launches.append(arguments)

    class Real(Kernel):
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
            return lambda *arguments, **constants: compiled

    prepared = Prepared(Real(), CONSTANTS, num_warps=4)
    for _ in range(2):
        prepared((5, 2), "first", 1, "last")
    compiled[(5, 2, 1)]("first", 1, "last", 8, "n", stream=STREAM)
    ours, theirs = launches
    hooks = slice(6, 9)  # And what they are told.
    assert ours[hooks] == (None, None, None)
    assert (ours[:6], ours[9:]) == (theirs[:6], theirs[9:])
