"""What an embedder promises: unit vectors of one dimension, or an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from inferscale_core.errors import InvalidInput
from inferscale_core.memory.workers import EmbedderIdentity as EmbedderIdentity

if TYPE_CHECKING:
    import torch

LentVectors: TypeAlias = "AbstractContextManager[torch.Tensor]"
Vectors = npt.NDArray[np.float32]

SMALLEST_NORM = 1e-6
"""A float32 vector shorter than this has lost its direction to rounding."""


class Embedder(Protocol):
    """Safe to call from several threads. Slow: call it in a thread pool, never on an event loop."""

    @property
    def identity(self) -> EmbedderIdentity: ...

    @property
    def max_tokens(self) -> int:
        """The window, special tokens included. `embed` ignores what lies beyond it: a fact that
        is longer is refused before, and of a longer question `text_end` takes the end."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of the text, special tokens included, however long it is."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """float32 [len(texts), dimension], each row of norm 1.

        Raises InvalidInput when the model gives a zero, NaN or infinite vector.
        """
        ...


class DeviceEmbedder(Embedder, Protocol):
    """One whose vectors can be used where they are made."""

    @property
    def device(self) -> torch.device:
        """Where `on_device` gives them."""
        ...

    def on_device(self, texts: Sequence[str]) -> LentVectors:
        """float32 [len(texts), dimension], of any norm and not checked, of up to 32 texts.

        Made without a wait for the device; valid until the block ends, by which whoever uses it
        has waited for what it gives.
        """
        ...


class HostEmbedder(DeviceEmbedder, Protocol):
    """To be inherited by one that makes its vectors in host memory."""

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device("cpu")

    def on_device(self, texts: Sequence[str]) -> LentVectors:
        return in_host_memory(self.embed(texts))


@contextmanager
def in_host_memory(vectors: Vectors) -> Iterator[torch.Tensor]:
    """What `DeviceEmbedder.on_device` gives of vectors that are on the host."""
    import torch

    yield torch.from_numpy(vectors)


def checked_unit_vectors(vectors: Vectors, dimension: int) -> Vectors:
    """The rows scaled to norm 1. Refuses what could not be compared with other vectors.

    Raises InvalidInput naming the first bad row and what is wrong with it.
    """
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise InvalidInput("embedding", f"shape {vectors.shape} is not [texts, {dimension}]")
    exact = vectors.astype(np.float64)
    for row in np.flatnonzero(~np.isfinite(exact).all(axis=1)):
        raise InvalidInput("embedding", f"vector {row} has a NaN or infinite component")
    norms = np.linalg.norm(exact, axis=1)
    for row in np.flatnonzero(norms < SMALLEST_NORM):
        raise InvalidInput("embedding", f"vector {row} is zero")
    units: Vectors = (exact / norms[:, None]).astype(np.float32)
    return units
