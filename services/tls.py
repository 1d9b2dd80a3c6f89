"""TLS of a service, from its settings: of its own server, and of its calls to other services."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from inferscale_core.rpc.channel import ChannelOptions
from inferscale_core.rpc.tls import (
    CertificateFiles,
    channel_credentials,
    check_authorities,
    server_credentials,
)
from inferscale_core.settings import TlsSettings, WrongSettings, variable


def check_tls(settings: TlsSettings) -> None:
    """Raises WrongSettings for files that are missing or do not fit each other."""
    problems = []
    if (settings.cert_file is None) != (settings.key_file is None):
        unset = "key_file" if settings.key_file is None else "cert_file"
        problems.append(f"{variable('tls', unset)} must be set, as the other half of a pair")
    if settings.client_ca_file is not None and settings.cert_file is None:
        problems.append(
            f"{variable('tls', 'client_ca_file')} is set without {variable('tls', 'cert_file')}"
        )
    files = _files(settings)
    if files is not None and not problems:
        problems += _problem("cert_file", settings.cert_file, files.check)
    peer_ca = settings.peer_ca_file
    if peer_ca is not None:
        problems += _problem("peer_ca_file", peer_ca, lambda: check_authorities(peer_ca))
    if problems:
        raise WrongSettings(*problems)


def own_credentials(settings: TlsSettings) -> grpc.ServerCredentials | None:
    """None: the server speaks plain text."""
    files = _files(settings)
    return None if files is None else server_credentials(files)


def peer_options(settings: TlsSettings) -> ChannelOptions:
    """For calls to the other services."""
    if settings.peer_ca_file is None:
        return ChannelOptions()
    return ChannelOptions(
        credentials=channel_credentials(
            settings.peer_ca_file, settings.cert_file, settings.key_file
        )
    )


def _files(settings: TlsSettings) -> CertificateFiles | None:
    if settings.cert_file is None or settings.key_file is None:
        return None
    return CertificateFiles(settings.cert_file, settings.key_file, settings.client_ca_file)


def _problem(field: str, path: str | None, check: Callable[[], None]) -> list[str]:
    try:
        check()
    except OSError as exc:
        return [f"{variable('tls', field)} is {path!r}: {exc}"]
    return []
