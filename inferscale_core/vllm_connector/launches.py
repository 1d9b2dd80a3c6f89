"""How the kernels of a step's copies are launched: one behind the other, or all as one CUDA graph.

    packed copies ──expand──► list of copies ──compose or capture, for each cache group──► caches

Between two steps an engine pushes other code out of the processor's caches, and what Triton and the
driver do for each kernel takes several times as long as with warm ones. A graph of all of a step's
kernels is one call, which engines themselves make all the time. It is fixed when it is made: where
it reads and writes, and how many programs run. So there is one for each pinned buffer, and the
kernels find in it how much there is to do (`kernels.expand.packed`).

Source: CUDA C++ Programming Guide, "CUDA Graphs"; torch.cuda.CUDAGraph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from inferscale_core.vllm_connector.copies import Copy, pack
from inferscale_core.vllm_connector.staging import BUFFER_BYTES, PinnedRing

if TYPE_CHECKING:
    from inferscale_core.kernels.expand.launch import Expand
    from inferscale_core.kernels.launching import CacheLaunch

LIST_NUMBERS = 1 << 20
"""Of the list of copies on the device, 8 MB: 200,000 tokens and more. A step with more takes memory
of its own."""


class Programs(NamedTuple):
    """How many are launched: of expand, and of what copies tokens, there for each few layers."""

    expand: int
    tokens: int


FEW_TOKENS = 256
FEW = Programs(expand=32, tokens=FEW_TOKENS)
MANY = Programs(expand=256, tokens=2048)
"""So that 50 facts take one round; programs without a token cost about a microsecond a thousand."""

INTERPRETED = Programs(expand=2, tokens=3)
"""Programs run one after the other there, and each is to have several tokens."""

Launch = Callable[[Sequence[Copy]], None]
"""Copies what is told, in order of the current stream."""


class Kernels:
    """Expand and what copies tokens, in the order in which they are launched."""

    def __init__(self, expand: Expand, moves: Sequence[CacheLaunch]) -> None:
        self._expand, self._moves = expand, moves

    def launch(self, packed: Tensor, copies: Tensor, programs: Programs) -> None:
        """packed: as of `copies.pack`, int32, where the device reads it. copies: the numbers of the
        list that is made of it, int64, or more, on the device."""
        self._expand(packed, copies, programs.expand)
        for move in self._moves:
            move(copies, programs.tokens)


class PlainLaunch:
    """Kernel by kernel. Waits for the device where there is one."""

    def __init__(self, kernels: Kernels, device: torch.device, programs: Programs = MANY) -> None:
        self._kernels, self._device, self._programs = kernels, device, programs

    def __call__(self, copies: Sequence[Copy]) -> None:
        packed, shape = pack(copies)
        numbers = torch.frombuffer(bytearray(packed), dtype=torch.int32).to(self._device)
        made = torch.empty(shape.num_numbers, dtype=torch.int64, device=self._device)
        self._kernels.launch(numbers, made, self._programs)


class GraphLaunch:
    """All kernels at once. What does not fit the buffers is launched plainly.

    Made while the device is idle, after a plain launch, which has compiled the kernels. Called by
    the rank's own thread, always on one stream: all that read a list of copies run before the next
    is made in its place.
    """

    def __init__(
        self, kernels: Kernels, ring: PinnedRing, copies: Tensor, plain: PlainLaunch
    ) -> None:
        """copies: [LIST_NUMBERS], int64; may be shared with other launches on the stream."""
        self._ring, self._plain = ring, plain
        self._graphs = [
            [_graph(kernels, buffer, copies, programs) for buffer in ring.buffers]
            for programs in (FEW, MANY)
        ]
        self._replays = [[graph.replay for graph in graphs] for graphs in self._graphs]
        self._kept = copies

    def __call__(self, copies: Sequence[Copy]) -> None:
        packed, shape = pack(copies)
        if len(packed) > BUFFER_BYTES or shape.num_numbers > LIST_NUMBERS:
            self._plain(copies)
            return
        self._replays[shape.num_tokens > FEW_TOKENS][self._ring.fill(packed)]()


def open_launches(
    all_kernels: Sequence[Kernels], device: torch.device, nothing: Copy
) -> list[Launch]:
    """Of each kernels, compiled by copying `nothing`, so that no request waits for that."""
    plain = [
        PlainLaunch(kernels, device, MANY if device.type == "cuda" else INTERPRETED)
        for kernels in all_kernels
    ]
    for launch in plain:
        launch([nothing])
    if device.type != "cuda":
        return [*plain]
    ring = PinnedRing(device)
    copies = torch.empty(LIST_NUMBERS, dtype=torch.int64, device=device)
    return [
        GraphLaunch(kernels, ring, copies, launch)
        for kernels, launch in zip(all_kernels, plain, strict=True)
    ]


def _graph(
    kernels: Kernels, buffer: Tensor, copies: Tensor, programs: Programs
) -> torch.cuda.CUDAGraph:
    """Without `torch.cuda.graph`, which collects garbage for each."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream(copies.device)):  # type: ignore[no-untyped-call]
        # Other threads of the process may go on using the device.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            kernels.launch(buffer, copies, programs)
        finally:
            graph.capture_end()
    return graph
