"""A channel to the coordinator of this federation, and to nobody else.

grpcio checks that a certificate comes from the CA and names the host; it cannot be told to check the
URI that says who the peer is, nor to refuse TLS 1.2, and it never shows the client the peer's
certificate. So one handshake with the standard library checks all of it first, and the channel then
trusts exactly the certificate that was checked: a server with any other key cannot complete a call.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from eigenveil.certificates import UNREADABLE
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Role, parse_identity
from eigenveil_client.connection.interception import handshake, who_else
from eigenveil_client.connection.proxy import DIRECT, Proxy, ProxyRule
from eigenveil_common.files import read
from eigenveil_common.rpc import OPTIONS

HANDSHAKE_SECONDS = 10.0

CLIENT_OPTIONS: tuple[tuple[str, int | str], ...] = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name also the time that a connection may take to be made: 100 ms would shut out every
    # line on which TCP and TLS, three trips there and back, take longer.
    ("grpc.min_reconnect_backoff_ms", 20_000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # The way is ours to choose, not the environment's: see `proxy`.
    ("grpc.enable_http_proxy", 0),
)


async def verified_channel(
    address: str, federation: str, ca_pem: bytes, client: Path | None, rule: ProxyRule = DIRECT
) -> grpc.aio.Channel:
    """A channel that reaches the coordinator of `federation` at `address`, over TLS 1.3, by the way that
    `rule` says. `client` is a file with the private key and the certificate to show (PEM).

    Raises:
        PeerError: code `unreachable`; or `identity`, if whoever answers is not that coordinator: the
            message says who signed for it.
        RequestError: the proxy's credentials cannot be used.
    """
    proxy = rule.towards(address)
    leaf = await verified_leaf(address, ca_pem, client, proxy)
    check_coordinator(leaf, federation)
    pinned = leaf.public_bytes(Encoding.PEM)
    pair = read(client) if client else None
    credentials = grpc.ssl_channel_credentials(
        root_certificates=pinned, private_key=pair, certificate_chain=pair
    )
    if proxy is None:
        return grpc.aio.secure_channel(address, credentials, options=CLIENT_OPTIONS)
    options = (*CLIENT_OPTIONS, *proxy.options(address))
    return grpc.aio.secure_channel(proxy.address, credentials, options=options)


def check_coordinator(leaf: x509.Certificate, federation: str) -> None:
    """Insist that a certificate names the coordinator of `federation`, is one of servers, and names its
    hosts one by one.

    Raises:
        PeerError: code `identity`.
    """
    found = parse_identity(only_uri(leaf))
    if _usages(leaf) != [ExtendedKeyUsageOID.SERVER_AUTH] or any("*" in name for name in _hosts(leaf)):
        raise PeerError(
            Code.IDENTITY,
            f"the other end's certificate, {found.uri}, is not a coordinator's: it must be for servers only "
            "and name its hosts one by one; tell the federation's operator",
        )
    if (found.federation, found.role) != (federation, Role.COORDINATOR):
        raise PeerError(
            Code.IDENTITY,
            f"the other end is {found.uri}, not the coordinator of federation {federation}; "
            "check the address, and tell the federation's operator",
        )


def _usages(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except UNREADABLE:
        return []


def _hosts(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)


def only_uri(certificate: x509.Certificate) -> str:
    """The one URI among a certificate's subject alternative names.

    Raises:
        PeerError: code `identity`, none or several.
    """
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
    except UNREADABLE:
        uris = []
    if len(uris) != 1:
        raise PeerError(Code.IDENTITY, f"a certificate must carry one identity, this has {len(uris)}")
    return uris[0]


def tls_context(ca_pem: bytes, client: Path | None) -> ssl.SSLContext:
    """TLS 1.3 that trusts `ca_pem` only and presents `client`.

    Raises:
        RequestError: the stored files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # An authority is trusted as it stands, also one that a root elsewhere has signed [R19].
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=ca_pem.decode("ascii"))
        if client is not None:
            context.load_cert_chain(client)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"the stored key or certificates cannot be used: {problem}; enrol again"
        ) from problem
    return context


async def verified_leaf(
    address: str, ca_pem: bytes, client: Path | None, proxy: Proxy | None
) -> x509.Certificate:
    """The certificate that the federation's CA vouches for, from one TLS 1.3 handshake.

    Raises:
        PeerError: code `unreachable`; or `identity`, naming who signed instead.
    """
    context = tls_context(ca_pem, client)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            return await handshake(address, context, proxy)
    except TimeoutError as problem:
        way = "" if proxy is None else f" through the proxy {proxy.address}"
        raise PeerError(
            Code.UNREACHABLE, f"no coordinator answers at {address}{way} within {HANDSHAKE_SECONDS:.0f} s"
        ) from problem
    except OSError as problem:
        raise await who_else(address, ca_pem, proxy, problem) from problem
