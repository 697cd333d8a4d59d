"""The files of an identity: each is replaced as a whole, so that any crash leaves one that works.

One folder, readable by its owner only:

    key.pem          EC P-256, made here, and the certificate that the coordinator issued for it
    pending.pem      a key that is being certified: kept until its certificate is in key.pem, so that a
                     lost answer is asked for again with the same key
    authorities.json the list of the federation's authorities, and its release key: see `trusted_authorities`
    identity.json    name, coordinator address; written last, so it means "enrolled"
    analyst.key      an analyst's: by what studies are signed; no certificate has a part in it
    generation.json  a site's: what its daemon shows in its next greeting
    peer.key         a site's: by what it shares secrets with other sites; no certificate has a part in it
    peers.json       a site's: which other sites' cards its people have confirmed
    analysts.json    a site's: which analysts' cards its people have confirmed
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.certificates import UNREADABLE
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, parse_identity
from eigenveil.protocol.authorities import AuthorityList
from eigenveil_client.connection.interception import signed_by
from eigenveil_client.connection.tls import only_uri
from eigenveil_common.failpoints import failpoint
from eigenveil_common.files import read_secret, write_secret

KEY, PENDING, ABOUT = "key.pem", "pending.pem", "identity.json"
RENEWAL = "renewal"


def read_pair(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The key and its certificate.

    Raises:
        RequestError: missing, damaged, or readable by others.
    """
    data = read_secret(folder / KEY)
    try:
        return _key(data), x509.load_pem_x509_certificate(data)
    except UNREADABLE as problem:
        raise damaged(folder) from problem


def damaged(folder: Path) -> RequestError:
    """The error for an identity that cannot be read."""
    return RequestError(Code.BAD_CONFIG, f"{folder} is damaged; move it away and enrol again")


def pending_key(folder: Path, purpose: str) -> ec.EllipticCurvePrivateKey:
    """The key to be certified next: the one whose answer for this purpose was lost, or a new one, which is
    on the disk. `purpose` is `RENEWAL` or the digest of a token.

    Raises:
        RequestError: a file is damaged. InternalError: code `storage`.
    """
    path, line = folder / PENDING, f"for {purpose}\n".encode()
    held = read_secret(path) if path.exists() else b""
    if held.startswith(line):
        try:
            key = _key(held)
        except UNREADABLE as problem:
            raise damaged(folder) from problem
        # One token is good for one key, even if a crash came after the key was put in force.
        if purpose != RENEWAL or not _in_force(folder, key):
            return key
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(path, line + _pem(key))
    failpoint("identity-keyed")
    return key


def _in_force(folder: Path, key: ec.EllipticCurvePrivateKey) -> bool:
    return (folder / KEY).exists() and read_pair(folder)[0].public_key() == key.public_key()


def request_for(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A certificate request (DER). It states no name: the coordinator believes none."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def checked(
    certificate_pem: bytes, held: AuthorityList, identity: Identity, key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """An answered certificate, if it is ours and comes from one of the authorities.

    Raises:
        PeerError: code `identity`.
    """
    try:
        leaf = x509.load_pem_x509_certificate(certificate_pem)
    except UNREADABLE as problem:
        raise PeerError(Code.IDENTITY, f"the coordinator sent no usable certificate: {problem}") from problem
    if not signed_by(leaf, held.issuers):
        raise PeerError(Code.IDENTITY, "the certificate is not the federation's; nothing was stored")
    matches(leaf, identity, key)
    failpoint("identity-granted")
    return leaf


def matches(leaf: x509.Certificate, identity: Identity, key: ec.EllipticCurvePrivateKey) -> None:
    """Insist that a certificate is for `identity` and `key`.

    Raises:
        PeerError: code `identity`.
    """
    if parse_identity(only_uri(leaf)) != identity or leaf.public_key() != key.public_key():
        raise PeerError(
            Code.IDENTITY,
            f"the certificate is not for {identity.uri} and the key in this folder; enrol again",
        )


def store(folder: Path, key: ec.EllipticCurvePrivateKey, leaf: x509.Certificate) -> None:
    """Put a certificate and its key in force.

    Raises:
        InternalError: code `storage`; what was in force before still is.
    """
    failpoint("identity-replacing")
    write_secret(folder / KEY, _pem(key) + leaf.public_bytes(serialization.Encoding.PEM))
    failpoint("identity-replaced")


def settle(folder: Path) -> None:
    """Drop the pending key: it is in force."""
    (folder / PENDING).unlink(missing_ok=True)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, form, serialization.NoEncryption())


def _key(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an elliptic-curve key")
    return key
