"""What the servicer adds to the use cases: who a call is about, on every line of its log."""

from __future__ import annotations

import pytest

from inferscale_core.ids import ModelRevision, WorkerId
from inferscale_core.rpc.pb.inferscale.v1 import common_pb2, worker_pb2
from services.worker.identity import WorkerIdentity
from services.worker.servicer import WorkerServicer
from tests.telemetry_capture import captured
from tests.worker.conftest import RECIPE, FakeWorker
from tests.worker.control import WordEmbedder
from tests.worker.test_encode import encode, fill


def servicer(worker: FakeWorker) -> WorkerServicer:
    parts, revision = worker.parts, ModelRevision("tiny@1")
    embedder = WordEmbedder().identity
    identity = WorkerIdentity(WorkerId("w"), "1", "w:1", "tiny", revision, RECIPE, embedder, 120)
    return WorkerServicer(
        identity,
        parts.encode,
        parts.generate,
        parts.forget,
        parts.cache,
        parts.lengths,
        parts.activity,
    )


async def test_log_lines_of_a_call_name_the_tenant_that_it_is_about(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(worker)
    await encode(worker)
    user = worker_pb2.UserRef(tenant_id="acme", user_id="robin", memory_version=1)
    question = common_pb2.Message(role="user", content="Where is the spare key?")
    with captured() as capture:
        monkeypatch.setattr("services.worker.generate.SERVED_WAIT_S", 0.01)
        monkeypatch.setattr(worker.reports, "record", lambda event: None)
        request = worker_pb2.GenerateRequest(user=user, messages=[question], k=2)
        events = [event async for event in servicer(worker).Generate(request, None)]
    assert events[-1].response.HasField("done")
    [line] = [line for line in capture.lines() if "chat.served_unknown" in line]
    assert "tenant_id=acme" in line
    assert "spare key" not in capture.everything()
