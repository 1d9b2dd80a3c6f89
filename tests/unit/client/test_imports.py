from __future__ import annotations

import subprocess
import sys


def test_the_client_loads_nothing_of_the_service() -> None:
    script = (
        "import sys, inferscale_core.client\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = {"torch", "vllm", "sqlalchemy", "pydantic", "numpy", "transformers", "psycopg"}
    assert not heavy & set(loaded)
    assert "opentelemetry" in loaded
