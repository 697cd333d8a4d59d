"""Who answers in the coordinator's place: most often the network's own TLS inspection.

Such a box ends TLS itself and shows a certificate that it signed. A client that trusts only the
federation's CA refuses it; this module looks at that certificate once more, without trusting it and
without saying anything, so that the message can name who signed it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress

from cryptography import x509
from cryptography.x509.oid import NameOID

from eigenveil.certificates import UNREADABLE
from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil_client.connection.proxy import Proxy, connect, split_address

GLANCE_SECONDS = 10.0
NAME_LENGTH = 100


async def handshake(address: str, context: ssl.SSLContext, proxy: Proxy | None) -> x509.Certificate:
    """The certificate that is shown at `address`; the connection ends with the handshake.

    Raises:
        PeerError: code `unreachable`. ssl.SSLError, OSError: the handshake failed.
    """
    host, _ = split_address(address)
    _, writer = await connect(address, proxy)
    try:
        await writer.start_tls(context, server_hostname=host)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()  # nothing was said that would need an orderly end
    return x509.load_der_x509_certificate(der)


async def who_else(address: str, ca_pem: bytes, proxy: Proxy | None, failure: OSError) -> PeerError:
    """The error for a handshake at `address` that ended with `failure`; names who signed instead.

    A connection that merely broke is `unreachable`, unless a look at it shows a stranger.
    """
    broke = not isinstance(failure, ssl.SSLError)
    why = getattr(failure, "verify_message", "") or getattr(failure, "reason", "") or str(failure)
    shown = await _glance(address, proxy)
    if shown is not None and not (broke and signed_by(shown, x509.load_pem_x509_certificates(ca_pem))):
        return PeerError(Code.IDENTITY, judged(address, ca_pem, shown, why or "the handshake broke off"))
    if broke:
        said = why or "the connection was closed during the handshake"
        return PeerError(Code.UNREACHABLE, f"no coordinator answers at {address}: {said}")
    return PeerError(
        Code.IDENTITY,
        f"{address} does not speak the TLS of a coordinator ({why}); check the address, and ask IT "
        "whether a firewall or a sign-in page answers in its place",
    )


async def _glance(address: str, proxy: Proxy | None) -> x509.Certificate | None:
    """Whatever certificate is shown at `address`; None if none is.

    For looking only: nothing is sent, and no certificate of ours is shown.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        async with asyncio.timeout(GLANCE_SECONDS):
            return await handshake(address, context, proxy)
    except (OSError, TimeoutError, EigenveilError, ValueError):
        return None


def judged(address: str, ca_pem: bytes, shown: x509.Certificate, why: str) -> str:
    """The sentence about a certificate that was refused because of `why`."""
    if signed_by(shown, x509.load_pem_x509_certificates(ca_pem)):
        return (
            f"the certificate at {address} is the federation's, but cannot be used ({why}); check this "
            "machine's clock and the address, then tell the coordinator's operator"
        )
    named = _federation(shown)
    if named:
        return (
            f"the certificate at {address} names {named}, but {issuer(shown)} signed it, not the authority "
            "of the join file: your network's TLS inspection, another federation at this address, or a new "
            f"authority; ask IT to exempt {address} from inspection, and tell the federation's operator"
        )
    return (
        f"your network's TLS inspection, issuer {issuer(shown)}, replaces the certificate at {address}; "
        f"ask IT to exempt {address} from inspection (or the address is not the coordinator's)"
    )


def signed_by(shown: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    """Whether one of the authorities signed the certificate."""
    for authority in authorities:
        with suppress(*UNREADABLE):
            shown.verify_directly_issued_by(authority)
            return True
    return False


def issuer(shown: x509.Certificate) -> str:
    """CN=... (or the organisation) of who signed, fit to be printed."""
    for kind, oid in (("CN", NameOID.COMMON_NAME), ("O", NameOID.ORGANIZATION_NAME)):
        found = shown.issuer.get_attributes_for_oid(oid)
        if found:
            text = str(found[0].value)
            return f"{kind}={''.join(c if c.isprintable() else '?' for c in text)[:NAME_LENGTH]}"
    return "without a name"


def _federation(shown: x509.Certificate) -> str:
    """The eigenveil:// name in a certificate, if it has one that can be read."""
    try:
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        return ""
    ours = [uri for uri in uris if uri.startswith("eigenveil://") and uri.isprintable()]
    return ours[0][:NAME_LENGTH] if ours else ""
