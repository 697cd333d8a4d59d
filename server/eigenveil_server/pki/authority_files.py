"""Files of the certificate authorities: those that the federation trusts, and the one that issues [R19].
authorities.json stores every signed list of authorities, oldest first, each with its signatures; the last one
is in force. ca.pem stores the certificates of those that may issue; the first one does. ca.key stores the
secret keys on this machine; each belongs to the certificate with its public key, or to none yet. An authority
is its own root, or an external root has signed it. Either way that authority alone is trusted, and nothing
else that its root has signed. `authority_lists` changes these files. Each change replaces one whole file, so
all can be read at any moment and after any crash."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.numerics.encoding import parse_json
from eigenveil.protocol.authorities import (
    AuthorityList,
    SignedAuthorityList,
    list_from_json,
    verify_next_list,
)
from eigenveil.signatures import UNREADABLE
from eigenveil_common.files import path_exists, read, read_secret, write_durably
from eigenveil_server.config import Files
from eigenveil_server.pki.authority import Authority, fingerprint, keys_from_pem, pem

MISSING = (
    "has no list of authorities yet. After init --csr, run: eigenveil-coordinator ca import, then ca accept"
)


def check_first_list(path: Path) -> None:
    """Raise unless there is a first list."""
    if not path_exists(path):
        raise RequestError(Code.BAD_CONFIG, f"{path.parent} {MISSING}")


def read_chain(path: Path) -> tuple[SignedAuthorityList, ...]:
    """Return the lists, oldest first."""
    check_first_list(path)
    try:
        return tuple(
            SignedAuthorityList(
                list_json=one["list"].encode(),
                signatures=tuple(bytes.fromhex(signature) for signature in one["signatures"]),
            )
            for one in parse_json(read(path))
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is damaged; restore it from the backup") from problem


def write_chain(path: Path, chain: Sequence[SignedAuthorityList]) -> None:
    """Replace the lists."""
    document = [
        {"list": one.list_json.decode(), "signatures": [signature.hex() for signature in one.signatures]}
        for one in chain
    ]
    write_durably(path, json.dumps(document, indent=2).encode() + b"\n")


def verify_chain(chain: Sequence[SignedAuthorityList]) -> AuthorityList:
    """Return the list in force: the last one, if each has enough signatures."""
    try:
        current_list = list_from_json(chain[0].list_json)
        if not current_list.is_signed(chain[0]):
            raise ValueError("the first list is not signed")
        for one in chain[1:]:
            current_list = verify_next_list(current_list, one)
    except (EigenveilError, ValueError, IndexError) as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"authorities.json is damaged ({problem}); restore it from the backup"
        ) from problem
    return current_list


class Authorities:
    """Current content of the files; `refresh` reads them again after a change. Raises RequestError: a file is
    missing, damaged, readable by others, or without the key of the issuer."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen: tuple[object, ...] = ()
        check_first_list(files.authorities)
        self.refresh()

    def refresh(self) -> bool:
        """Read the files if one was replaced; return True if so."""
        with self._lock:
            files = self._files
            seen = tuple(map(_stamp, (files.authorities, files.ca, files.ca_key)))
            if seen == self._seen:
                return False
            chain = read_chain(files.authorities)
            current_list, first = verify_chain(chain), certificates(read(files.ca))[0]
            issuing = authority_of(first, keys_from_pem(read_secret(files.ca_key)))
            if issuing.certificate not in current_list.issuers:
                raise RequestError(
                    Code.BAD_CONFIG,
                    f"the first authority in {files.ca}, {fingerprint(issuing.certificate)[:12]}, is not in "
                    "the list of authorities; restore both files from the backup",
                )
            self._chain, self.current_list, self.issuing, self._seen = chain, current_list, issuing, seen
            return True

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """Return the trusted authorities' certificates; the first one issues."""
        first = self.issuing.certificate
        return (first, *(one for one in self.current_list.issuers if one != first))

    @property
    def pem(self) -> bytes:
        """Return `trusted` as PEM, for TLS."""
        return pem(*self.trusted)

    def since(self, version: int) -> tuple[SignedAuthorityList, ...]:
        """Return the lists after this version."""
        newer = self.current_list.version - version
        return self._chain[max(0, len(self._chain) - newer) :]


def certificates(data: bytes) -> list[x509.Certificate]:
    """Return the certificates in a PEM file."""
    try:
        return x509.load_pem_x509_certificates(data)
    except UNREADABLE as problem:
        raise RequestError(
            Code.BAD_CONFIG,
            f"no certificate (PEM) in ca.pem or in the named file ({problem}); restore ca.pem from the "
            "backup, or name another file",
        ) from problem


def authority_of(certificate: x509.Certificate, keys: Sequence[ec.EllipticCurvePrivateKey]) -> Authority:
    """Return the authority with this certificate."""
    for key in keys:
        if key.public_key() == certificate.public_key():
            return Authority(certificate=certificate, key=key)
    raise RequestError(
        Code.BAD_CONFIG,
        f"ca.key has no key for the authority {fingerprint(certificate)[:12]}: the certificate is of "
        "another request, or the files are of different backups",
    )


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {problem.strerror}") from problem
    return (found.st_ino, found.st_mtime_ns, found.st_size)
