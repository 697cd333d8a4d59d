"""A channel to the coordinator of this federation, and to nobody else.

grpcio checks that a certificate comes from the CA and names the host; it cannot be told to check the
URI that says who the peer is, nor to refuse TLS 1.2, and it never shows the client the peer's
certificate. So one handshake with the standard library checks all of it first, and the channel then
trusts exactly the certificate that was checked: a server with any other key cannot complete a call.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Role, parse_identity
from eigenveil_common.rpc import OPTIONS

HANDSHAKE_SECONDS = 10.0

CLIENT_OPTIONS: tuple[tuple[str, int | str], ...] = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Calls go straight to the address of the join file; a proxy could only end the TLS we rely on.
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """The files of a client's private key and certificate (PEM)."""

    key: Path
    certificate: Path


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`.

    Raises:
        RequestError: not of that form.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise RequestError(Code.BAD_CONFIG, f"{address!r} is not an address; write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def verified_channel(
    address: str, federation: str, ca_pem: bytes, client: KeyPair | None
) -> grpc.aio.Channel:
    """A channel that reaches the coordinator of `federation` at `address`, over TLS 1.3.

    Raises:
        PeerError: code `unreachable`; or `identity`, if whoever answers is not that coordinator.
    """
    leaf = await _handshake(address, _context(ca_pem, client))
    check_coordinator(leaf, federation)
    pinned = leaf.public_bytes(Encoding.PEM)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=pinned,
        private_key=client.key.read_bytes() if client else None,
        certificate_chain=client.certificate.read_bytes() if client else None,
    )
    return grpc.aio.secure_channel(address, credentials, options=CLIENT_OPTIONS)


def check_coordinator(leaf: x509.Certificate, federation: str) -> None:
    """Insist that a certificate names the coordinator of `federation`.

    Raises:
        PeerError: code `identity`.
    """
    found = parse_identity(only_uri(leaf))
    if (found.federation, found.role) != (federation, Role.COORDINATOR):
        raise PeerError(
            Code.IDENTITY,
            f"the other end is {found.uri}, not the coordinator of federation {federation}; "
            "check the address, and tell the federation's operator",
        )


def only_uri(certificate: x509.Certificate) -> str:
    """The one URI among a certificate's subject alternative names.

    Raises:
        PeerError: code `identity`, none or several.
    """
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        uris = []
    if len(uris) != 1:
        raise PeerError(Code.IDENTITY, f"a certificate must carry one identity, this has {len(uris)}")
    return uris[0]


def _context(ca_pem: bytes, client: KeyPair | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=ca_pem.decode("ascii"))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"the stored key or certificates cannot be used: {problem}; enrol again"
        ) from problem
    return context


async def _handshake(address: str, context: ssl.SSLContext) -> x509.Certificate:
    host, port = split_address(address)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    except ssl.SSLError as problem:
        why = getattr(problem, "verify_message", "") or problem.reason or "TLS failed"
        raise PeerError(
            Code.IDENTITY,
            f"{address} is not a coordinator that this certificate authority vouches for: {why}",
        ) from problem
    except (OSError, TimeoutError) as problem:
        raise PeerError(Code.UNREACHABLE, f"no coordinator answers at {address}: {problem}") from problem
    der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()  # nothing was said that would need an orderly end
    return x509.load_der_x509_certificate(der)
