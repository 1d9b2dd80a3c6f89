"""A sentence-transformers model run without what its `encode` does around the model.

`encode` takes 3 to 5 ms of Python for one short text. Here a text is tokenised by a tokenizer of
our own and the modules are called with tokens, on a GPU in float16. Whether that gives what
`encode` gives in float32 is not assumed: it is measured when the model is loaded.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from inferscale_core.embedding.buckets import Buckets
from inferscale_core.embedding.embedder import Vectors
from inferscale_core.embedding.transformer import encode
from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)

MIN_COSINE = 0.9995
"""Between a vector here and that of `encode` in float32: facts are embedded elsewhere, perhaps on a
CPU. all-MiniLM-L6-v2 in float16 stays above 0.99999."""

PROBES = (
    "Where?",
    " Where does Robin keep the spare key for the office? ",
    "On 27 January 2025: Mira's sister Freja will marry Paolo in Bologna on 21 June 2025.",
    "Ünïcode, 漢字 and emoji 🙂 stand beside numbers such as 4471.",
    "The alarm was serviced in May, and nobody wrote down what the engineer said about it. " * 20,
)


class LeanForward:
    """Texts to vectors. One call at a time."""

    def __init__(self, model: Any, *, pad: bool | None = None) -> None:
        """pad: as `Buckets`. Raises AttributeError, TypeError or KeyError for a model that is not
        made of modules over tokens."""
        self.model = model.eval()
        self.device = torch.device(model.device)
        max_tokens = int(model.max_seq_length)
        # A copy, since calls of the model's own tokenizer change how it truncates and pads.
        tokenizer = copy.deepcopy(model.tokenizer.backend_tokenizer)
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_tokens)
        self._tokenizer = tokenizer
        self._buckets = Buckets(
            self._modules,
            max_tokens=max_tokens,
            pad_id=int(model.tokenizer.pad_token_id),
            device=self.device,
            pad=pad,
        )

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [len(texts), dimension], not normalised. Waits for the device once."""
        return np.asarray(self.on_device(texts).cpu().numpy(), dtype=np.float32)

    def on_device(self, texts: Sequence[str]) -> torch.Tensor:
        """The same where the model is, without a wait; valid until the next call, which is not to
        come before the device has got to here."""
        if len(texts) == 1:  # Not worth the tokenizer's own threads.
            encodings = [self._tokenizer.encode(texts[0])]
        else:
            encodings = self._tokenizer.encode_batch(list(texts))
        return self._buckets.run([encoding.ids for encoding in encodings])

    def _modules(self, token_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        output = self.model({"input_ids": token_ids, "attention_mask": mask})
        vectors: torch.Tensor = output["sentence_embedding"]
        return vectors


def lean_forward(model: Any) -> LeanForward | None:
    """The model's forward pass in the first dtype whose vectors are `encode`'s in float32.

    None when there is no such dtype, or when the model is not made of modules over tokens; it is
    then used through `encode`. Takes about a second on a GPU.
    """
    expected = encode(model, list(PROBES))
    on_gpu = torch.device(model.device).type == "cuda"
    for dtype in (torch.float16, torch.float32) if on_gpu else (torch.float32,):
        try:
            lean = LeanForward(model if dtype == torch.float32 else copy.deepcopy(model).to(dtype))
            cosine = least_cosine(lean(PROBES), expected)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            _log.warning("embedder.not_lean", exc=exc)
            return None
        _log.info("embedder.checked", dtype=str(dtype), cosine=round(cosine, 7))
        if cosine >= MIN_COSINE:
            return lean
    return None


def least_cosine(actual: Vectors, expected: Vectors) -> float:
    """Of the pairs of rows; NaN where one has no direction."""
    dots = np.einsum("nd,nd->n", actual.astype(np.float64), expected.astype(np.float64))
    norms = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    return float((dots / norms).min())
