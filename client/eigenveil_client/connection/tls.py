"""TLS channel to the coordinator of this federation only, and detection of a server in its place.

grpcio checks that a certificate comes from the CA and names the host. It can neither check the URI with the
peer's identity nor refuse TLS 1.2, and it does not give the peer's certificate to the client. Therefore one
handshake with the standard library checks all of these first. The channel then trusts exactly that
certificate: a server with another key cannot complete a call."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil.identity import Role, parse_identity
from eigenveil.signatures import UNREADABLE
from eigenveil_client.connection.proxy import DIRECT, Proxy, ProxyRule, connect, split_address
from eigenveil_common.files import read
from eigenveil_common.rpc import OPTIONS

PEEK_SECONDS = 10.0
NAME_LENGTH = 100


async def handshake(address: str, context: ssl.SSLContext, proxy: Proxy | None) -> x509.Certificate:
    """Return the certificate presented at `address`; the connection ends with the handshake. Raises
    PeerError: code `unreachable`. ssl.SSLError, OSError: the handshake failed."""
    host, _ = split_address(address)
    _, writer = await connect(address, proxy)
    try:
        await writer.start_tls(context, server_hostname=host)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()  # no data was sent that needs an orderly end
    return x509.load_der_x509_certificate(der)


async def handshake_error(address: str, ca_pem: bytes, proxy: Proxy | None, failure: OSError) -> PeerError:
    """Return the error for a handshake at `address` that ended with `failure`; it names the issuer.

    A server in the coordinator's place is mostly the network's own TLS inspection. Such a device ends TLS
    itself and presents a certificate that it signed. A client that trusts only the federation's CA refuses
    it. That certificate is read once more, without trusting it and without sending data, so that the message
    can name the issuer.

    A broken connection is `unreachable`, unless a second handshake shows a certificate of another issuer."""
    broke = not isinstance(failure, ssl.SSLError)
    why = getattr(failure, "verify_message", "") or getattr(failure, "reason", "") or str(failure)
    shown = await _peek_certificate(address, proxy)
    ours = shown is not None and signed_by(shown, x509.load_pem_x509_certificates(ca_pem))
    if shown is not None and not (broke and ours):
        message = _refusal_message(address, shown, why or "the handshake failed", ours=ours)
        return PeerError(Code.IDENTITY, message)
    if broke:
        cause = why or "the connection was closed during the handshake"
        return PeerError(Code.UNREACHABLE, f"no coordinator answers at {address}: {cause}")
    todo = "check the address, and ask IT whether a firewall or a sign-in page answers in its place"
    return PeerError(Code.IDENTITY, f"{address} does not use the TLS of a coordinator ({why}); {todo}")


async def _peek_certificate(address: str, proxy: Proxy | None) -> x509.Certificate | None:
    """Return any certificate presented at `address`, or None. It is not trusted: no data and no certificate
    of ours are sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        async with asyncio.timeout(PEEK_SECONDS):
            return await handshake(address, context, proxy)
    except (OSError, TimeoutError, EigenveilError, ValueError):
        return None


def _refusal_message(address: str, shown: x509.Certificate, why: str, *, ours: bool) -> str:
    """Return the message about a certificate, `ours` or not, that was refused because of `why`."""
    if ours:
        todo = "check this machine's clock and the address, then tell the coordinator's operator"
        return f"the certificate at {address} is the federation's, but cannot be used ({why}); {todo}"
    exempt = f"IT to exempt {address} from inspection"
    claimed_uri, signer = _eigenveil_uri(shown), issuer(shown)
    if claimed_uri:
        other = f"names {claimed_uri}, but {signer} signed it, not the authority of the join file"
        causes = "TLS inspection, another federation, or a new authority"
        todo = f"Ask {exempt}, and tell the federation's operator"
        return f"the certificate at {address} {other}: {causes}. {todo}"
    inspected = f"your network's TLS inspection, issuer {signer}, replaces the certificate at {address}"
    return f"{inspected}; ask {exempt}, or check the coordinator's address"


def signed_by(shown: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    """True if one of the authorities signed the certificate."""
    for authority in authorities:
        with suppress(*UNREADABLE):
            shown.verify_directly_issued_by(authority)
            return True
    return False


def issuer(shown: x509.Certificate) -> str:
    """Return CN=... (or the organisation) of the issuer, with printable characters only."""
    for kind, oid in (("CN", NameOID.COMMON_NAME), ("O", NameOID.ORGANIZATION_NAME)):
        found = shown.issuer.get_attributes_for_oid(oid)
        if found:
            text = str(found[0].value)
            return f"{kind}={''.join(c if c.isprintable() else '?' for c in text)[:NAME_LENGTH]}"
    return "without a name"


def _eigenveil_uri(shown: x509.Certificate) -> str:
    """Return the eigenveil:// name in a certificate; empty if there is no readable one."""
    with suppress(x509.ExtensionNotFound, ValueError):
        for uri in _alternative_names(shown).get_values_for_type(x509.UniformResourceIdentifier):
            if uri.startswith("eigenveil://") and uri.isprintable():
                return uri[:NAME_LENGTH]
    return ""


HANDSHAKE_SECONDS = 10.0

CLIENT_OPTIONS: tuple[tuple[str, int | str], ...] = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Also the time limit for connecting: TCP and TLS take three round trips, over 100 ms on slow lines.
    ("grpc.min_reconnect_backoff_ms", 20_000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # The configuration chooses the proxy, not the environment: see `proxy`.
    ("grpc.enable_http_proxy", 0),
)


async def verified_channel(
    address: str, federation: str, ca_pem: bytes, client: Path | None, rule: ProxyRule = DIRECT
) -> grpc.aio.Channel:
    """Return a TLS 1.3 channel to the coordinator of `federation` at `address`, through the proxy of `rule`.

    `client` is a file with the private key and the certificate to present (PEM).

    Raises:
        PeerError: code `unreachable`; or `identity`, if another server answers: the message names the issuer
            of its certificate.
        RequestError: the proxy's credentials cannot be used."""
    proxy = rule.proxy_for(address)
    leaf = await verified_leaf(address, ca_pem, client, proxy)
    check_coordinator(leaf, federation)
    pinned_pem = leaf.public_bytes(Encoding.PEM)
    pair = read(client) if client else None
    credentials = grpc.ssl_channel_credentials(pinned_pem, private_key=pair, certificate_chain=pair)
    if proxy is None:
        return grpc.aio.secure_channel(address, credentials, options=CLIENT_OPTIONS)
    options = (*CLIENT_OPTIONS, *proxy.options(address))
    return grpc.aio.secure_channel(proxy.address, credentials, options=options)


def check_coordinator(leaf: x509.Certificate, federation: str) -> None:
    """Check that a certificate is for servers, without wildcard, and of the coordinator of `federation`."""
    identity, usages = parse_identity(only_uri(leaf)), list[x509.ObjectIdentifier]()
    with suppress(*UNREADABLE):
        usages += leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    hosts = _alternative_names(leaf).get_values_for_type(x509.DNSName)
    if usages != [ExtendedKeyUsageOID.SERVER_AUTH] or any("*" in name for name in hosts):
        why = "it must be for servers only and have no wildcard host. Tell the federation's operator"
        raise PeerError(
            Code.IDENTITY, f"the other end's certificate, {identity.uri}, is not a coordinator's: {why}"
        )
    if (identity.federation, identity.role) != (federation, Role.COORDINATOR):
        other = f"the server is {identity.uri}, not the coordinator of federation {federation}"
        todo = "check the address, and tell the federation's operator"
        raise PeerError(Code.IDENTITY, f"{other}; {todo}")


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def only_uri(certificate: x509.Certificate) -> str:
    """Return the only URI among a certificate's subject alternative names."""
    uris: list[str] = []
    with suppress(*UNREADABLE):
        uris += _alternative_names(certificate).get_values_for_type(x509.UniformResourceIdentifier)
    if len(uris) != 1:
        raise PeerError(Code.IDENTITY, f"a certificate must carry one identity, this has {len(uris)}")
    return uris[0]


def tls_context(ca_pem: bytes, client: Path | None) -> ssl.SSLContext:
    """Return a TLS 1.3 context that trusts `ca_pem` only and presents `client`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # An authority is trusted itself, also if another root has signed it [R19].
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(cadata=ca_pem.decode("ascii"))
        if client is not None:
            context.load_cert_chain(client)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as problem:
        why = f"the stored key or certificates are unusable: {problem}; enrol again"
        raise RequestError(Code.BAD_CONFIG, why) from problem
    return context


async def verified_leaf(
    address: str, ca_pem: bytes, client: Path | None, proxy: Proxy | None
) -> x509.Certificate:
    """Return the certificate, verified by the federation's CA, from one TLS 1.3 handshake."""
    context = tls_context(ca_pem, client)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            return await handshake(address, context, proxy)
    except TimeoutError as problem:
        via = "" if proxy is None else f" through the proxy {proxy.address}"
        late = f"no coordinator answers at {address}{via} within {HANDSHAKE_SECONDS:.0f} s"
        raise PeerError(Code.UNREACHABLE, late) from problem
    except OSError as problem:
        raise await handshake_error(address, ca_pem, proxy, problem) from problem
