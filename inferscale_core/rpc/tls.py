"""Certificates of servers and of those who call them, from PEM files.

A server reads its certificate again when the files have changed, so that one which is renewed is
used by the next connection. Callers read theirs once.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

import grpc

from inferscale_core.telemetry.logs import get_logger

_log = get_logger(__name__)

_NEVER = "a key that wants a passphrase is refused"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """certificate: a chain, the server's own first. client_ca: authorities of callers, who must
    have a certificate then; None asks for none."""

    certificate: str
    key: str
    client_ca: str | None = None

    def check(self) -> None:
        """Raises OSError, ssl.SSLError included, when they cannot be used together."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key, password=lambda: _NEVER)
        if self.client_ca is not None:
            check_authorities(self.client_ca)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.certificate, self.key, *([self.client_ca] if self.client_ca else ()))


def check_authorities(path: str) -> None:
    """Raises OSError, ssl.SSLError included, for a file without a certificate."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)


def server_credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """Raises OSError when the files cannot be used now."""
    watched = _WatchedFiles(files)
    credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
        watched.read(),
        watched.changed,  # type: ignore[arg-type]  # None is allowed: nothing has changed
        require_client_authentication=files.client_ca is not None,
    )
    return credentials


def channel_credentials(
    ca_file: str | None = None, cert_file: str | None = None, key_file: str | None = None
) -> grpc.ChannelCredentials:
    """What a caller speaks TLS with, as `ChannelOptions.credentials`. ca_file: authorities that the
    server is trusted by; None takes gRPC's own list. cert_file, key_file: the caller's own, for a
    server that asks for one. Raises OSError."""
    credentials: grpc.ChannelCredentials = grpc.ssl_channel_credentials(
        root_certificates=_bytes(ca_file),
        private_key=_bytes(key_file),
        certificate_chain=_bytes(cert_file),
    )
    return credentials


class _WatchedFiles:
    """`changed` is called in gRPC's own threads, with every handshake."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._seen: tuple[float, ...] = ()

    def read(self) -> grpc.ServerCertificateConfiguration:
        times = self._times()
        self._files.check()
        pair = (_read(self._files.key), _read(self._files.certificate))
        configuration = grpc.ssl_server_certificate_configuration(
            [pair], root_certificates=_bytes(self._files.client_ca)
        )
        self._seen = times
        return configuration

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """None goes on with what there is, also while files are only half replaced."""
        try:
            return None if self._times() == self._seen else self.read()
        except OSError as exc:
            _log.warning("tls.not_read_again", exc=exc)
            return None

    def _times(self) -> tuple[float, ...]:
        return tuple(os.stat(path).st_mtime_ns for path in self._files.paths)


def _bytes(path: str | None) -> bytes | None:
    return None if path is None else _read(path)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
