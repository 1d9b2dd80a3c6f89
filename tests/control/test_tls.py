"""Control and a worker that speak TLS with each other and with clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferscale_core.client import (
    AsyncInferScale,
    AsyncOperator,
    ChannelOptions,
    ClientOptions,
    RetryPolicy,
    channel_credentials,
)
from inferscale_core.errors import Unavailable
from inferscale_core.settings import TlsSettings
from tests.certificates import Authority
from tests.control.fake_embedder import FakeEmbedder
from tests.control.fake_worker import FakeWorker
from tests.control.harness import (
    INTERNAL_TOKEN,
    NO_RETRY,
    OPERATOR_TOKEN,
    Control,
    eventually,
    settings_for,
)
from tests.fixtures_postgres import Database


async def test_a_chat_goes_over_tls_from_client_to_worker_and_back(
    database: Database, tmp_path: Path
) -> None:
    """Workers ask for a certificate, and control shows its own."""
    authority = Authority(tmp_path)
    of_control, of_worker = authority.sign("control"), authority.sign("worker")
    peer = {"peer_ca_file": authority.path}
    tls = TlsSettings(cert_file=of_control.certificate, key_file=of_control.key, **peer)
    settings = settings_for(database).model_copy(update={"tls": tls})
    control = Control(settings, FakeEmbedder())
    await control.start()
    credentials = channel_credentials(authority.path)
    options = ClientOptions(
        retries=RetryPolicy(max_attempts=1), channel=ChannelOptions(credentials=credentials)
    )
    worker = FakeWorker(
        control.address,
        INTERNAL_TOKEN,
        model="tls-model",
        worker_id="tls-worker",
        tls=TlsSettings(
            cert_file=of_worker.certificate,
            key_file=of_worker.key,
            client_ca_file=authority.path,
            **peer,
        ),
    )
    try:
        await worker.start()
        await worker.join()
        async with AsyncOperator(control.address, OPERATOR_TOKEN, options) as operator:
            created = await operator.create_tenant("tls-tenant", ["tls-model"])
        async with AsyncInferScale(control.address, created.api_key, options) as client:
            await client.add_memory("mira", "Robin has a dog.")
            assert "Robin has a dog." in (await client.chat("mira", "Hello?").answer()).text

            async def is_encoded() -> bool:
                return bool(worker.encode_requests)

            assert await eventually(is_encoded)
        async with AsyncInferScale(control.address, created.api_key, NO_RETRY) as plain:
            with pytest.raises(Unavailable):
                await plain.list_memories("mira")
    finally:
        await worker.close()
        await control.stop()
