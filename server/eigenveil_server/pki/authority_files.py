"""Which certificate authorities the federation trusts, and which of them issues: three files [R19].

authorities.json holds every signed list of them, the last of which is in force. ca.pem holds the
certificates of those that may issue, and the first of them does. ca.key holds the secret keys that are here;
each belongs to the certificate with its public key, or to none yet. An authority may be its own root, or
signed by a root that is kept elsewhere: either way it is trusted as it stands, and nothing else that its
root has signed. `lists` changes them; each change replaces one file by a whole one, so that all may be read
at any moment and after any crash.
"""

from __future__ import annotations

import threading
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.certificates import UNREADABLE
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.authorities import SignedList
from eigenveil_common.files import read, read_secret
from eigenveil_server.config import Files
from eigenveil_server.pki.authority import Authority, fingerprint, keys_from_pem, pem
from eigenveil_server.pki.chain import check_begun, read_chain, walked


class Authorities:
    """The files as they are now; `refresh` reads them again if one was replaced.

    Raises:
        RequestError: one is missing, damaged, readable by others, or the key that issues is not here.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen: tuple[object, ...] = ()
        check_begun(files.authorities)
        self.refresh()

    def refresh(self) -> bool:
        """Read the files if they were replaced; whether they were."""
        with self._lock:
            files = self._files
            seen = tuple(map(_stamp, (files.authorities, files.ca, files.ca_key)))
            if seen == self._seen:
                return False
            chain = read_chain(files.authorities)
            held = walked(chain)
            issuing = authority_of(
                certificates(read(files.ca))[0], tuple(keys_from_pem(read_secret(files.ca_key)))
            )
            if issuing.certificate not in held.issuers:
                raise RequestError(
                    Code.BAD_CONFIG,
                    f"{files.ca} begins with {fingerprint(issuing.certificate)[:12]}, which the list of "
                    "authorities does not name; restore both files from the backup",
                )
            self._chain, self.held, self.issuing, self._seen = chain, held, issuing, seen
            return True

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """Those whose certificates are believed; the first issues."""
        first = self.issuing.certificate
        return (first, *(one for one in self.held.issuers if one != first))

    @property
    def pem(self) -> bytes:
        """The same, as TLS takes them."""
        return pem(*self.trusted)

    def since(self, version: int) -> tuple[SignedList, ...]:
        """The lists after this version, for whoever holds that one."""
        first = self.held.version - len(self._chain) + 1
        return self._chain[max(0, version + 1 - first) :]


def certificates(data: bytes) -> list[x509.Certificate]:
    """The certificates in a PEM file.

    Raises:
        RequestError: there is none, or one cannot be read.
    """
    try:
        return x509.load_pem_x509_certificates(data)
    except UNREADABLE as problem:
        raise RequestError(
            Code.BAD_CONFIG, f"ca.pem, or the file named, holds no certificate (PEM): {problem}"
        ) from problem


def authority_of(certificate: x509.Certificate, keys: tuple[ec.EllipticCurvePrivateKey, ...]) -> Authority:
    """The authority with this certificate.

    Raises:
        RequestError: its key is not among `keys`.
    """
    for key in keys:
        if key.public_key() == certificate.public_key():
            return Authority(certificate=certificate, key=key)
    raise RequestError(
        Code.BAD_CONFIG,
        f"ca.key does not hold the key of the authority {fingerprint(certificate)[:12]}, so the two do not "
        "belong together",
    )


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as problem:
        raise RequestError(Code.BAD_CONFIG, f"cannot read {path}: {problem.strerror}") from problem
    return (found.st_ino, found.st_mtime_ns, found.st_size)
