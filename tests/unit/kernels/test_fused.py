from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_fused_kernels_equal_their_references_in_the_interpreter() -> None:
    """Every storage, layout, head count, pairing, partial rotation and dtype; see
    `interpreted.py`."""
    check("cpu", is_interpreted=True)


@pytest.mark.gpu
def test_fused_kernels_equal_their_references_on_a_gpu() -> None:
    check("cuda", is_interpreted=False)


def check(device: str, *, is_interpreted: bool) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.unit.kernels.interpreted", device],
        env=os.environ | {"TRITON_INTERPRET": str(int(is_interpreted))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "48 cases agree" in result.stdout
