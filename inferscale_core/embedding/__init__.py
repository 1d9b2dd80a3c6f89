"""Text to vectors: one embedder, the same in control and on every worker."""

from inferscale_core.embedding.embedder import (
    DeviceEmbedder,
    Embedder,
    EmbedderIdentity,
    checked_unit_vectors,
)
from inferscale_core.embedding.load import load_embedder
from inferscale_core.embedding.text_end import TextEnd, text_end

__all__ = [
    "DeviceEmbedder",
    "Embedder",
    "EmbedderIdentity",
    "TextEnd",
    "checked_unit_vectors",
    "load_embedder",
    "text_end",
]
