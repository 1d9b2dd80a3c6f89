"""What the engine raises, as errors of ours.

Source: vLLM 0.26, v1/engine/async_llm.py (AsyncLLM.generate raises ValueError for a request that it
refuses) and vLLM 0.32, exceptions.py (VLLMClientError for those, no longer a ValueError).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from inferscale_core.errors import EngineError, InvalidInput, Unavailable


@dataclass(frozen=True, slots=True)
class EngineFailures:
    """dead: no request will be answered any more. failed: this one. refused: by its content."""

    dead: type[Exception]
    failed: type[Exception]
    refused: tuple[type[Exception], ...]

    @classmethod
    def of_installed_engine(cls) -> EngineFailures:
        from vllm import exceptions
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        client_error = getattr(exceptions, "VLLMClientError", None)
        refused = (ValueError, client_error) if client_error else (ValueError,)
        return cls(EngineDeadError, EngineGenerateError, refused)

    @contextlib.contextmanager
    def translated(self, handle: str) -> Iterator[None]:
        """Around all that asks the engine for request `handle`."""
        try:
            yield
        except self.dead as exc:
            raise Unavailable("the engine has died") from exc
        except self.failed as exc:
            raise EngineError(f"request {handle} failed in the engine") from exc
        except self.refused as exc:
            raise InvalidInput("request", f"the engine refuses request {handle}") from exc
