"""A model's forward pass over tokens, padded to few shapes and replayed as CUDA graphs.

A small encoder is bound by the launches of its hundred kernels, which one replay makes at once.
Padding changes no vector by more than rounding does: padded tokens are masked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)

Forward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Token ids and mask, [num_texts, length] int64 each, to vectors [num_texts, dimension]."""

LENGTHS = (16, 32, 64, 128, 256)
"""Tokens of a text that a shape has room for. Questions take 8 to 40."""

BATCHES = (1, 16)
"""Texts of a shape. 16 short texts take a GPU hardly longer than one."""


class Bucket:
    """One shape: inputs at a fixed place, and the pass over them, recorded where CUDA is there."""

    def __init__(
        self,
        forward: Forward,
        num_texts: int,
        length: int,
        pad_id: int,
        device: torch.device,
        pool: Any = None,
    ) -> None:
        """pool: graphs whose runs never overlap may share the memory of what they compute."""
        self._forward = forward
        self._pad_id = pad_id
        self._host = torch.zeros(
            2, num_texts, length, dtype=torch.int64, pin_memory=device.type == "cuda"
        )
        self._inputs = torch.zeros(2, num_texts, length, dtype=torch.int64, device=device)
        self._graph: Any = None
        self._outputs = torch.empty(0)
        if device.type == "cuda":
            self._record(pool)

    def run(self, token_ids: Sequence[Sequence[int]]) -> torch.Tensor:
        """[len(token_ids), dimension], valid until the next run."""
        self._fill(token_ids)
        self._inputs.copy_(self._host, non_blocking=True)
        if self._graph is None:
            self._outputs = self._forward(*self._inputs)
        else:
            self._graph.replay()
        return self._outputs[: len(token_ids)]

    def _fill(self, token_ids: Sequence[Sequence[int]]) -> None:
        """Rows without a text attend to one padding token, so that nothing divides by zero."""
        ids, mask = self._host.numpy()
        ids.fill(self._pad_id)
        mask.fill(0)
        mask[len(token_ids) :, 0] = 1
        for row, text in enumerate(token_ids):
            ids[row, : len(text)] = text
            mask[row, : len(text)] = 1

    def _record(self, pool: Any) -> None:
        """Source: torch 2.11, CUDAGraph: warm up on a side stream before capturing."""
        self._fill([])
        self._inputs.copy_(self._host)
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._forward(*self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            self._outputs = self._forward(*self._inputs)
        self._graph = graph


class Buckets:
    """All shapes, and the pass as it is for what fits none. One call at a time.

    On CUDA the shapes are recorded now, in about a second; on the CPU every call runs as it is,
    padded to its own longest text, unless `pad` is set.
    """

    def __init__(
        self,
        forward: Forward,
        *,
        max_tokens: int,
        pad_id: int,
        device: torch.device,
        pad: bool | None = None,
    ) -> None:
        self._forward = forward
        self._pad_id = pad_id
        self._device = device
        self._by_shape: dict[tuple[int, int], Bucket] = {}
        if device.type == "cuda" if pad is None else pad:
            self._make(max_tokens)

    def run(self, token_ids: Sequence[Sequence[int]]) -> torch.Tensor:
        """Vectors on the device, in float32: [len(token_ids), dimension]."""
        longest = max(map(len, token_ids))
        with torch.inference_mode():
            return self._smallest(len(token_ids), longest).run(token_ids).float()

    def _smallest(self, num_texts: int, longest: int) -> Bucket:
        for (batch, length), bucket in self._by_shape.items():
            if num_texts <= batch and longest <= length:
                return bucket
        return _Eager(self._forward, num_texts, longest, self._pad_id, self._device)

    def _make(self, max_tokens: int) -> None:
        lengths = [size for size in LENGTHS if size <= max(max_tokens, LENGTHS[0])]
        pool = torch.cuda.graph_pool_handle() if self._device.type == "cuda" else None
        try:
            with torch.inference_mode():
                for shape in itertools.product(BATCHES, lengths):
                    self._by_shape[shape] = Bucket(
                        self._forward, *shape, self._pad_id, self._device, pool
                    )
        except RuntimeError as exc:
            # A model that looks at its values on the host cannot be recorded; it runs as it is.
            _log.warning("embedder.not_recorded", exc=exc)
            self._by_shape.clear()


class _Eager(Bucket):
    """A shape for one call."""

    def _record(self, pool: Any) -> None:
        """Nothing: it would be used once."""
