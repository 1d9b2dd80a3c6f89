"""The embedded server: shared by processes, and gone with the last of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from inferscale_core.store import EmbeddedPostgres
from inferscale_core.store.embedded import conninfo

HOLD = """
import sys, time
from pathlib import Path
from inferscale_core.store import EmbeddedPostgres
EmbeddedPostgres(Path(sys.argv[1])).start()
print("started", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="inferscale-embedded-"))
    yield folder / "data"
    shutil.rmtree(folder)


def test_a_server_whose_process_was_killed_is_taken_over_and_ended(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"started\n"
        holder.kill()
    running = folder / "postmaster.pid"
    assert running.exists()
    server = EmbeddedPostgres(folder)
    server.start()
    url = server.create_database("kept")
    assert server.create_database("kept") == url
    server.stop()
    assert not running.exists()
    server.start()
    with psycopg.connect(conninfo(url)) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("kept",)
    server.stop()
    assert not running.exists()
