"""The lean forward pass gives what the model's own `encode` gives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from inferscale_core.embedding import lean
from inferscale_core.embedding.buckets import BATCHES, LENGTHS
from inferscale_core.embedding.lean import (
    MIN_COSINE,
    PROBES,
    LeanForward,
    lean_forward,
    least_cosine,
)
from inferscale_core.embedding.load import load_model
from inferscale_core.embedding.transformer import encode
from inferscale_core.settings import EmbedderSettings

TEXTS = [f"{'word ' * (n % 40)}number {n}" for n in range(BATCHES[-1])]


@pytest.fixture(scope="module")
def model() -> Any:
    return load_model(EmbedderSettings(device="cpu"))


@pytest.fixture(scope="module")
def padded(model: Any) -> LeanForward:
    """With every shape, as on a GPU, though nothing is recorded here."""
    return LeanForward(model, pad=True)


def test_the_packaged_model_is_run_leanly(model: Any) -> None:
    chosen = lean_forward(model)
    assert chosen is not None
    np.testing.assert_allclose(chosen(TEXTS), encode(model, TEXTS), atol=1e-6)


def test_padding_to_a_shape_changes_no_vector(model: Any, padded: LeanForward) -> None:
    assert len(padded._buckets._by_shape) == len(LENGTHS) * len(BATCHES)
    for texts in (TEXTS[:1], TEXTS[30 % len(TEXTS) :][:1], TEXTS[:3], TEXTS, list(PROBES)):
        np.testing.assert_allclose(padded(texts), encode(model, texts), atol=1e-6)


def test_a_shape_keeps_nothing_of_the_call_before(model: Any, padded: LeanForward) -> None:
    expected = padded(["short"])
    padded(["word " * 12])
    np.testing.assert_array_equal(padded(["short"]), expected)
    padded([PROBES[1]] * BATCHES[-1])
    np.testing.assert_allclose(padded(["short", "shorter"])[0], expected[0], atol=1e-6)


def test_more_texts_than_any_shape_takes_are_run_too(model: Any, padded: LeanForward) -> None:
    texts = TEXTS * 2
    np.testing.assert_allclose(padded(texts), encode(model, texts), atol=1e-6)


def test_a_text_beyond_the_window_is_cut_where_the_model_cuts_it(
    model: Any, padded: LeanForward
) -> None:
    long = "many words that go on and on " * 100
    np.testing.assert_allclose(padded([long]), encode(model, [long]), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_the_direction_of_a_vector(model: Any, dtype: torch.dtype) -> None:
    half = LeanForward(copy.deepcopy(model).to(dtype))
    cosine = least_cosine(half(PROBES), encode(model, list(PROBES)))
    assert cosine > (0.99999 if dtype == torch.float16 else MIN_COSINE), cosine
    assert half(["a text"]).dtype == np.float32


def test_a_model_whose_lean_vectors_differ_is_used_through_encode(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompted = copy.deepcopy(model)
    monkeypatch.setattr(prompted, "prompts", {"query": "something else entirely: "})
    monkeypatch.setattr(prompted, "default_prompt_name", "query")
    assert lean_forward(prompted) is None


def test_a_model_without_a_fast_tokenizer_is_used_through_encode(model: Any) -> None:
    class Other:
        device, max_seq_length = "cpu", 16

        def encode(self, texts: list[str], **_: Any) -> np.ndarray:
            return np.ones((len(texts), 3), dtype=np.float32)

        def eval(self) -> Other:
            return self

    assert lean_forward(Other()) is None


def test_a_vector_without_a_direction_is_near_to_none() -> None:
    zero, one = np.zeros((1, 2), dtype=np.float32), np.ones((1, 2), dtype=np.float32)
    with np.errstate(invalid="ignore"):
        assert not least_cosine(zero, one) >= lean.MIN_COSINE


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_recorded_shapes_give_what_encode_gives_in_float32(model: Any) -> None:
    expected = {tuple(texts): encode(model, texts) for texts in (TEXTS[:1], TEXTS, list(PROBES))}
    on_gpu = lean_forward(copy.deepcopy(model).to("cuda"))
    assert on_gpu is not None
    assert on_gpu._buckets._by_shape
    for texts, vectors in expected.items():
        assert least_cosine(on_gpu(list(texts)), vectors) > MIN_COSINE
