from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPTS = {
    "interpreted": "48 cases agree",
    "copiers_agree": "8 pairs agree",
    "expand_agrees": "18 steps agree",
    "rank_agrees": "45 rankings agree",
}
"""Fused kernels against their references: every storage, layout, head count, pairing, partial
rotation and dtype; both ways to copy, over two KV cache groups; where each token lies; and which
facts are nearest."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_fused_kernels_equal_their_references_in_the_interpreter(script: str) -> None:
    check(script, "cpu", is_interpreted=True)


@pytest.mark.gpu
@pytest.mark.parametrize("script", SCRIPTS)
def test_fused_kernels_equal_their_references_on_a_gpu(script: str) -> None:
    check(script, "cuda", is_interpreted=False)


def check(script: str, device: str, *, is_interpreted: bool) -> None:
    result = subprocess.run(
        [sys.executable, "-m", f"tests.unit.kernels.{script}", device],
        env=os.environ | {"TRITON_INTERPRET": str(int(is_interpreted))},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert SCRIPTS[script] in result.stdout
