from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from inferscale_core.embedding import Embedder, checked_unit_vectors, load_embedder
from inferscale_core.embedding.transformer import SentenceTransformerEmbedder
from inferscale_core.errors import InvalidInput, Unsupported
from inferscale_core.settings import EmbedderSettings


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return load_embedder(EmbedderSettings(device="cpu"))


class FixedModel:
    """Stands for a model that gives one vector, whatever it reads."""

    max_seq_length = 16

    def __init__(self, vector: list[float]) -> None:
        self.vector = vector

    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        return np.array([self.vector] * len(texts), dtype=np.float32)


def embedder_giving(vector: list[float]) -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder(
        FixedModel(vector), embedder_id="fixed", revision="1", dimension=len(vector)
    )


def test_a_model_of_another_dimension_is_refused_with_both_numbers() -> None:
    with pytest.raises(Unsupported, match=r"384 dimensions.*768"):
        load_embedder(EmbedderSettings(device="cpu", dimension=768))


def test_a_model_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="no/such-model"):
        load_embedder(EmbedderSettings(model="./no/such-model", device="cpu"))


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ([0.0, 0.0, 0.0], "zero"),
        ([1e-30, 0.0, 0.0], "zero"),
        ([float("nan"), 1.0, 0.0], "NaN"),
        ([float("inf"), 1.0, 0.0], "infinite"),
        ([float("-inf"), 1.0, 0.0], "infinite"),
    ],
)
def test_a_vector_without_a_direction_never_leaves_the_embedder(
    vector: list[float], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        embedder_giving(vector).embed(["a text"])


def test_the_bad_row_of_a_batch_is_named() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    with pytest.raises(InvalidInput, match="vector 1 is zero"):
        checked_unit_vectors(vectors, 2)


def test_vectors_of_another_shape_are_refused() -> None:
    with pytest.raises(InvalidInput, match="384"):
        checked_unit_vectors(np.ones((1, 3), dtype=np.float32), 384)


def test_vectors_of_any_length_leave_with_norm_one() -> None:
    vectors = embedder_giving([3.0e4, 4.0e4]).embed(["a", "b"])
    np.testing.assert_allclose(vectors, [[0.6, 0.8]] * 2, rtol=1e-6)
    assert vectors.dtype == np.float32


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 384)


def test_the_packaged_model_ranks_what_is_related_first(embedder: Embedder) -> None:
    query, related, unrelated = embedder.embed(
        ["Where is the spare key?", "Robin keeps a spare key at the office.", "Rain is forecast."]
    )
    assert query @ related > query @ unrelated + 0.2


def test_a_text_gets_its_own_vector_wherever_it_stands_in_a_batch(embedder: Embedder) -> None:
    texts = [f"{'word ' * (n % 7)}number {n}" for n in range(70)]
    together = embedder.embed(texts)
    for row in (0, 33, 69):
        np.testing.assert_allclose(together[row], embedder.embed([texts[row]])[0], atol=1e-5)


def test_the_identity_names_what_must_agree_between_parts(embedder: Embedder) -> None:
    identity = embedder.identity
    assert (identity.embedder_id, identity.revision, identity.dimension) == (
        "all-MiniLM-L6-v2",
        "1",
        384,
    )


def test_tokens_are_counted_beyond_the_window(embedder: Embedder) -> None:
    assert embedder.max_tokens == 256
    assert embedder.count_tokens("hello") == 3
    assert embedder.count_tokens("hello " * 300) == 302


def test_threads_may_embed_and_count_at_once(embedder: Embedder) -> None:
    texts = ["short", "a somewhat longer text about nothing " * 20]
    expected = embedder.embed(texts)

    def work(_: int) -> np.ndarray:
        embedder.count_tokens(texts[1])
        return embedder.embed(texts)

    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(work, range(24)):
            np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_a_count_waits_for_no_forward_pass_and_is_of_the_whole_text() -> None:
    embedder = load_embedder(EmbedderSettings(device="cpu"))
    assert isinstance(embedder, SentenceTransformerEmbedder)
    with embedder._lock, ThreadPoolExecutor(1) as pool:
        assert pool.submit(embedder.count_tokens, "peanut " * 1000).result(10) > 1000


def test_vectors_lent_where_they_are_made_are_the_model_s_own_and_not_scaled() -> None:
    embedder = embedder_giving([3.0, 4.0])
    with embedder.on_device(["a", "b"]) as vectors:
        assert vectors.tolist() == [[3.0, 4.0]] * 2
    assert embedder.embed(["a"]).tolist() == pytest.approx(np.array([[0.6, 0.8]]))


def test_a_block_that_fails_gives_the_model_back() -> None:
    embedder = embedder_giving([3.0, 4.0])
    with pytest.raises(RuntimeError, match="the device is lost"), embedder.on_device(["a"]):
        raise RuntimeError("the device is lost")
    assert len(embedder.embed(["a"])) == 1
