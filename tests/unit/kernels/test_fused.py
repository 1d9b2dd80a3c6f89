from __future__ import annotations

import os
import subprocess
import sys


def test_fused_kernels_equal_their_references_in_the_interpreter() -> None:
    """Every layout, head count, pairing, partial rotation and dtype; see `interpreted.py`."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.unit.kernels.interpreted", "cpu"],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "24 cases agree" in result.stdout
