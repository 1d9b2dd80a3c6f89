"""What becomes of the engine's exceptions, in each version of it."""

from __future__ import annotations

import pytest
import vllm.exceptions
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from inferscale_core.errors import EngineError, InferScaleError, InvalidInput, Unavailable
from services.worker.engine.failures import EngineFailures


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (EngineDeadError(), Unavailable),
        (EngineGenerateError(), EngineError),
        (ValueError("the prompt is too long"), InvalidInput),
        (vllm.exceptions.VLLMValidationError("top_p"), InvalidInput),
    ],
)
def test_the_engines_failures_are_ours(raised: Exception, expected: type[InferScaleError]) -> None:
    with pytest.raises(expected), EngineFailures.of_installed_engine().translated("r1"):
        raise raised


def test_an_engine_without_a_class_for_refusals_refuses_with_value_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(vllm.exceptions, "VLLMClientError", raising=False)
    failures = EngineFailures.of_installed_engine()
    with pytest.raises(InvalidInput, match="r1"), failures.translated("r1"):
        raise ValueError("the prompt is too long")


def test_what_the_engine_does_not_know_passes_through() -> None:
    with pytest.raises(KeyError), EngineFailures.of_installed_engine().translated("r1"):
        raise KeyError("ours")
