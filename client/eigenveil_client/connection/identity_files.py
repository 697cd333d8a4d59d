"""Files of an identity, in one folder readable by its owner only, and the authorities that it trusts.

    key.pem          private key (EC P-256), made here, and the certificate that the coordinator issued
    pending.pem      key that is being certified, stored until its certificate is in key.pem, so that a
                     retry uses the same key
    authorities.json list of the federation's authorities, and its release key
    identity.json    name and coordinator address; written last, so its presence means "enrolled"
    analyst.key      of an analyst: signs studies; independent of the certificate
    generation.json  of a site: values that its daemon sends in its next greeting
    peer.key         of a site: signs its key for each masked study; independent of the certificate
    peers.json       of a site: key cards of other sites that its people have confirmed
    analysts.json    of a site: key cards of analysts that its people have confirmed

Each file is replaced as a whole, so that a crash leaves a usable one. A new list of authorities is accepted
only if the list before it has signed it; the version never decreases [R19]. A new join file replaces the
list. Only signatures decide, not the sender. A change is logged with the fingerprints."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil.identity import Identity, parse_identity
from eigenveil.protocol.authorities import AuthorityList, describe_change, list_from_json, update_authorities
from eigenveil.protocol.wire import lists_from_proto
from eigenveil.signatures import UNREADABLE, is_newer
from eigenveil_client.connection.tls import only_uri, signed_by
from eigenveil_common.concurrency import locked
from eigenveil_common.files import failpoint, path_exists, read, read_secret, write_durably, write_secret
from eigenveil_common.log import event, log_error
from eigenveil_proto.v1 import eigenveil_pb2 as pb

KEY, PENDING, ABOUT = "key.pem", "pending.pem", "identity.json"
RENEWAL = "renewal"


def read_pair(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Return the key and its certificate. Raises RequestError: missing, damaged, or readable by others."""
    data = read_secret(folder / KEY)
    try:
        return _parse_key(data), x509.load_pem_x509_certificate(data)
    except UNREADABLE as problem:
        raise damaged(folder) from problem


def unreadable(folder: Path, problem: Exception) -> EigenveilError:
    """Return the error for an identity that `problem` prevents from being read: damaged, or of a newer
    program."""
    if isinstance(problem, EigenveilError) and is_newer(problem):
        return problem
    return damaged(folder)


def damaged(folder: Path) -> RequestError:
    """Return the error for a damaged identity."""
    return RequestError(Code.BAD_CONFIG, f"{folder} is damaged; move it elsewhere and enrol again")


def pending_key(folder: Path, purpose: str) -> ec.EllipticCurvePrivateKey:
    """Return the key to be certified next, stored on disk: the pending key of this purpose, or a new one.
    `purpose` is `RENEWAL` or the digest of a token."""
    path, line = folder / PENDING, f"for {purpose}\n".encode()
    pending = read_secret(path) if path.exists() else b""
    if pending.startswith(line):
        try:
            key = _parse_key(pending)
        except UNREADABLE as problem:
            raise damaged(folder) from problem
        in_force = (folder / KEY).exists() and read_pair(folder)[0].public_key() == key.public_key()
        # One token certifies one key, even if a crash came after the key was put in force.
        if purpose != RENEWAL or not in_force:
            return key
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(path, line + _to_pem(key))
    failpoint("identity-keyed")
    return key


def request_for(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a certificate request (DER). It states no name: the coordinator ignores names."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def verified_certificate(
    certificate_pem: bytes, authorities: AuthorityList, identity: Identity, key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """Return the issued certificate, if it is for this identity and signed by one of the authorities."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate_pem)
    except UNREADABLE as problem:
        raise PeerError(Code.IDENTITY, f"the coordinator sent no usable certificate: {problem}") from problem
    if not signed_by(leaf, authorities.issuers):
        raise PeerError(Code.IDENTITY, "the certificate is not signed by the federation; nothing was stored")
    check_matches(leaf, identity, key)
    failpoint("identity-granted")
    return leaf


def check_matches(leaf: x509.Certificate, identity: Identity, key: ec.EllipticCurvePrivateKey) -> None:
    """Check that a certificate is for `identity` and `key`. Raises PeerError: code `identity`."""
    if parse_identity(only_uri(leaf)) != identity or leaf.public_key() != key.public_key():
        why = f"the certificate is not for {identity.uri} and the key in this folder; enrol again"
        raise PeerError(Code.IDENTITY, why)


def store_key_pair(folder: Path, key: ec.EllipticCurvePrivateKey, leaf: x509.Certificate) -> None:
    """Store a certificate and its key as the ones in force."""
    failpoint("identity-replacing")
    write_secret(folder / KEY, _to_pem(key) + leaf.public_bytes(serialization.Encoding.PEM))
    failpoint("identity-replaced")


def remove_pending_key(folder: Path) -> None:
    """Remove the pending key, which is in force now."""
    (folder / PENDING).unlink(missing_ok=True)


def _to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, form, serialization.NoEncryption())


def _parse_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not an elliptic-curve key")
    return key


AUTHORITIES_FILE = "authorities.json"
AUTHORITIES_LOCK = "authorities.lock"  # one process at a time compares and writes


def stored_authorities(folder: Path) -> AuthorityList:
    """Return the list in force. Raises RequestError: there is none, or it is damaged."""
    path, todo = folder / AUTHORITIES_FILE, "enrol again with a new join file from the coordinator's operator"
    if not path_exists(path):
        raise RequestError(Code.BAD_CONFIG, f"{folder} holds no list of authorities; {todo}")
    try:
        return list_from_json(read(path))
    except PeerError as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is damaged; {todo}") from problem


def follow_authorities(current: AuthorityList, sent: Sequence[pb.SignedAuthorities]) -> AuthorityList:
    """Return the last of the lists sent, each of which must follow the one before."""
    try:
        return update_authorities(current, lists_from_proto(sent), datetime.now(UTC))
    except PeerError as problem:
        log_error("authorities-refused", version=current.version, code=problem.code.value, detail=problem)
        raise


def accept_authorities(
    folder: Path, shown: AuthorityList, sent: Sequence[pb.SignedAuthorities]
) -> AuthorityList:
    """Return the list in force after the lists that were sent for `shown`; it is durable."""
    with locked(folder / AUTHORITIES_LOCK):
        current = stored_authorities(folder)
        if not sent or current != shown:  # another process was faster
            return current
        after = follow_authorities(current, sent)
        write_durably(folder / AUTHORITIES_FILE, after.to_json())
    _log_change(current, after)
    return after


def reset_authorities(folder: Path, authorities: AuthorityList) -> None:
    """Put the list of a join file in force, and log the change. Only here may the version decrease."""
    with locked(folder / AUTHORITIES_LOCK):
        try:
            before = stored_authorities(folder)
        except RequestError:  # none yet, or damaged, which a new enrolment repairs
            before = None
        write_durably(folder / AUTHORITIES_FILE, authorities.to_json())
    if before is not None and before != authorities:
        _log_change(before, authorities)


def _log_change(before: AuthorityList, after: AuthorityList) -> None:
    """Log a change for this end's operator."""
    detail = f"after version {before.version}: {describe_change(before, after)}"
    event("authorities-changed", logging.WARNING, version=after.version, detail=detail)
