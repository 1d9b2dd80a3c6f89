"""TLS over real sockets, with certificates made here."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from inferscale_core.client import (
    AsyncInferScale,
    ChannelOptions,
    ClientOptions,
    RetryPolicy,
    channel_credentials,
)
from inferscale_core.errors import Unavailable
from inferscale_core.ids import TenantId
from inferscale_core.rpc.identity import Principal, TenantPrincipal
from inferscale_core.rpc.pb.inferscale.v1 import memory_pb2, memory_pb2_grpc
from inferscale_core.rpc.server import RpcServer, ServerOptions
from inferscale_core.rpc.tls import CertificateFiles, server_credentials
from inferscale_core.settings import TlsSettings, WrongSettings
from services.tls import check_tls
from tests.certificates import Authority, Pair
from tests.rpc.fakes import FakeMemoryService


class KeysOfAcme:
    """Every credential is a key of the tenant acme."""

    async def authenticate(self, credential: str) -> Principal:
        return TenantPrincipal(TenantId("acme"), "k-1")


Serve = Callable[..., Awaitable[tuple[str, str]]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server with these files; gives its address and that of its plain health."""
    async with AsyncExitStack() as stack:

        async def start(pair: Pair, client_ca: str | None = None) -> tuple[str, str]:
            files = CertificateFiles(pair.certificate, pair.key, client_ca)
            options = ServerOptions(credentials=server_credentials(files))
            server = RpcServer(KeysOfAcme(), options)
            server.add(
                memory_pb2.DESCRIPTOR,
                memory_pb2_grpc.add_MemoryServiceServicer_to_server,
                FakeMemoryService(),
            )
            port = await server.start("localhost:0", health_address="127.0.0.1:0")
            stack.push_async_callback(server.drain, 0.0)
            return f"localhost:{port}", f"127.0.0.1:{server.health_port}"

        yield start


async def stored(address: str, **files: str) -> str:
    """The id of a memory stored over a connection of its own."""
    credentials = channel_credentials(**files) if files else None
    options = ClientOptions(
        deadline_s=5,
        retries=RetryPolicy(max_attempts=1),
        channel=ChannelOptions(credentials=credentials),
    )
    async with AsyncInferScale(address, "key", options) as client:
        return (await client.add_memory("robin", "Robin has a dog.")).memory.memory_id


async def test_a_client_that_trusts_the_authority_is_served(
    serve: Serve, authority: Authority
) -> None:
    address, _ = await serve(authority.sign("server"))
    assert await stored(address, ca_file=authority.path) == "m-1"


async def test_plain_text_and_another_authority_are_not(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    address, _ = await serve(authority.sign("server"))
    other = Authority(tmp_path, "other")
    refused: list[dict[str, str]] = [{}, {"ca_file": other.path}]
    for files in refused:
        with pytest.raises(Unavailable):
            await stored(address, **files)


async def test_where_callers_must_have_a_certificate_it_must_be_of_the_authority(
    serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    callers = Authority(tmp_path, "callers")
    address, _ = await serve(authority.sign("server"), callers.path)
    own, foreign = callers.sign("caller"), authority.sign("foreign")
    with pytest.raises(Unavailable):
        await stored(address, ca_file=authority.path)
    with pytest.raises(Unavailable):
        await stored(
            address,
            ca_file=authority.path,
            cert_file=foreign.certificate,
            key_file=foreign.key,
        )
    assert (
        await stored(address, ca_file=authority.path, cert_file=own.certificate, key_file=own.key)
        == "m-1"
    )


async def test_a_renewed_certificate_is_used_by_the_next_connection(
    serve: Serve, authority: Authority
) -> None:
    address, _ = await serve(authority.sign("server"))
    assert await stored(address, ca_file=authority.path) == "m-1"
    first = await presented(address)
    pair = authority.sign("server")
    renewed = ssl.PEM_cert_to_DER_cert(Path(pair.certificate).read_text())
    assert await presented(address) == renewed != first
    Path(pair.key).write_text("half of a file")
    assert await presented(address) == renewed, "what cannot be read is not taken"
    assert await stored(address, ca_file=authority.path) == "m-1"


async def presented(address: str) -> bytes:
    """The certificate that the server shows, in DER."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return bytes(shown)


async def test_probes_that_speak_no_tls_are_told_of_health_and_nothing_else(
    serve: Serve, authority: Authority
) -> None:
    _, health = await serve(authority.sign("server"))
    async with grpc.aio.insecure_channel(health) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await memory_pb2_grpc.MemoryServiceStub(channel).GetMemory(
                memory_pb2.GetMemoryRequest(user_id="robin", memory_id="m-1")
            )
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_files_that_are_missing_or_do_not_fit_are_named(
    authority: Authority, tmp_path: Path
) -> None:
    one, other = authority.sign("one"), authority.sign("other")
    check_tls(TlsSettings())
    check_tls(
        TlsSettings(
            cert_file=one.certificate,
            key_file=one.key,
            client_ca_file=authority.path,
            peer_ca_file=authority.path,
        )
    )
    for settings, problem in (
        (TlsSettings(cert_file=one.certificate), "INFERSCALE_TLS__KEY_FILE must be set"),
        (TlsSettings(key_file=one.key), "INFERSCALE_TLS__CERT_FILE must be set"),
        (TlsSettings(client_ca_file=authority.path), "without INFERSCALE_TLS__CERT_FILE"),
        (TlsSettings(peer_ca_file=str(tmp_path / "none")), "INFERSCALE_TLS__PEER_CA_FILE is"),
        (TlsSettings(cert_file=one.certificate, key_file=other.key), "CERT_FILE is .*one.pem"),
        (TlsSettings(peer_ca_file=one.key), "INFERSCALE_TLS__PEER_CA_FILE is .*one.key"),
    ):
        with pytest.raises(WrongSettings, match=problem):
            check_tls(settings)
