"""Which certificate authorities the federation trusts, and which of them issues: two files [R19].

ca.pem holds their certificates, and the first of them issues. ca.key holds the secret keys that are here;
each belongs to the certificate with its public key, or to none yet. An authority may be its own root, or
signed by a root that is kept elsewhere: either way it is trusted as it stands, and nothing else that its
root has signed. Each change replaces one file by a whole one, keys first, so that both may be read at any
moment and after any crash.
"""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, RequestError
from eigenveil.identity import UNREADABLE, authorities_digest
from eigenveil_common.failpoints import failpoint
from eigenveil_common.files import read, read_secret, write_durably, write_secret
from eigenveil_server.config import Files
from eigenveil_server.pki import Authority, fingerprint, key_to_pem, keys_from_pem, new_key, pem


class Authorities:
    """The two files as they are now; `refresh` reads them again if they were replaced.

    Raises:
        RequestError: one is missing, damaged, readable by others, or the key that issues is not here.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._seen: tuple[object, ...] = ()
        self.refresh()

    @classmethod
    def create(cls, files: Files, federation: str, now: datetime) -> Authorities:
        """Make the first authority, its own root."""
        first = Authority.create(federation, now)
        write_secret(files.ca_key, key_to_pem(first.key))
        write_durably(files.ca, pem(first.certificate))
        return cls(files)

    def refresh(self) -> bool:
        """Read the files if they were replaced; whether they were."""
        with self._lock:
            seen = (_stamp(self._files.ca), _stamp(self._files.ca_key))
            if seen == self._seen:
                return False
            trusted = tuple(certificates(read(self._files.ca)))
            self.keys = tuple(keys_from_pem(read_secret(self._files.ca_key)))
            self.issuing = _authority(trusted[0], self.keys)
            self.trusted = trusted
            self._seen = seen
            return True

    @property
    def pem(self) -> bytes:
        """All certificates, as they are given to clients."""
        return pem(*self.trusted)

    @property
    def digest(self) -> bytes:
        """What a client that trusts exactly these says in `Hello`."""
        return authorities_digest(self.trusted)

    @property
    def unborn(self) -> tuple[ec.EllipticCurvePrivateKey, ...]:
        """Keys whose certificate is still to be signed elsewhere."""
        known = [one.public_key() for one in self.trusted]
        return tuple(key for key in self.keys if key.public_key() not in known)

    def add_key(self) -> ec.EllipticCurvePrivateKey:
        """A new key, for a certificate to come; an earlier one that got none is dropped."""
        key = new_key()
        kept = [one for one in self.keys if one not in self.unborn]
        self._write_keys([*kept, key])
        return key

    def add(self, certificate: x509.Certificate) -> None:
        """Trust one more; its key must be here. It does not issue before `put_first`."""
        _authority(certificate, self.keys)
        self._write(*self.trusted, certificate)

    def put_first(self, certificate: x509.Certificate) -> None:
        """Issue with this one from now on."""
        _authority(certificate, self.keys)
        self._write(certificate, *(one for one in self.trusted if one != certificate))

    def keep_first(self) -> None:
        """Forget the keys of all but the one that issues, then trust only that; may be repeated after a crash
        in between."""
        self._write_keys([self.issuing.key])
        failpoint("authority-retiring")
        self._write(self.trusted[0])

    def _write(self, *trusted: x509.Certificate) -> None:
        write_durably(self._files.ca, pem(*trusted))
        self.refresh()

    def _write_keys(self, keys: list[ec.EllipticCurvePrivateKey]) -> None:
        write_secret(self._files.ca_key, b"".join(key_to_pem(key) for key in keys))
        self.refresh()


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


def _authority(certificate: x509.Certificate, keys: tuple[ec.EllipticCurvePrivateKey, ...]) -> Authority:
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
