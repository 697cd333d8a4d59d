"""Private keys of a party in its identity's folder, and export of an identity for a browser.

Keys are made once and on this machine. They are independent of certificates and outlive them, because other
people have compared their fingerprints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity
from eigenveil.numerics.encoding import parse_json
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.identity_files import read_pair
from eigenveil_common.concurrency import locked
from eigenveil_common.files import (
    check_new,
    check_owner,
    path_exists,
    read_secret,
    write_durably,
    write_secret,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """The file `name` in the folder of the identity `owner`, with the raw private keys called `keys`.

    `recovery` says what to do if no copy is left: a clause that names a command.
    """

    folder: Path
    name: str
    owner: Identity
    keys: tuple[str, ...]
    recovery: str

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def made(self) -> bool:
        """True if the path exists, also as a broken link.

        Raises:
            InternalError: code `storage`.
        """
        return self.path.is_symlink() or path_exists(self.path)

    def make(self, generate: Callable[[], Mapping[str, bytes]]) -> None:
        """Write the raw keys that `generate` draws, durable on return; an existing file stays.

        Raises:
            RequestError: code `bad-config`, root runs this in another user's folder.
            InternalError: code `storage`.
        """
        check_owner(self.folder)
        with locked(self.folder):  # only one of two parallel commands writes
            if not self.made:
                self._write(generate())

    def read(self) -> Mapping[str, bytes]:
        """Return the raw private keys, by name.

        Raises:
            RequestError: code `bad-config`, the file is a link, damaged, another party's, or others can read
                it.
        """
        if self.path.is_symlink():
            raise RequestError(
                Code.BAD_CONFIG,
                f"{self.path} is a link, but a private key must be a file: put the file itself there",
            )
        try:
            stored = parse_json(read_secret(self.path))
            holder = stored["federation"], stored[self._role]
            found = {key: bytes.fromhex(stored[key]) for key in self.keys}
        except (ValueError, KeyError, TypeError) as problem:
            raise self.damaged() from problem
        if holder != (self.owner.federation, self.owner.name):
            raise RequestError(
                Code.BAD_CONFIG,
                f"{self.path} belongs to {self._role} {holder[1]} in federation {holder[0]}, but this is "
                f"{self.owner.uri}; two {self._role}s must not share keys. Move the file elsewhere, then "
                f"{self.recovery}",
            )
        return found

    def damaged(self) -> RequestError:
        """Return the error of a file without readable keys."""
        where = f"{self.path} is damaged"
        return RequestError(
            Code.BAD_CONFIG,
            f"{where}: restore it from a backup. Without one, move it elsewhere, then {self.recovery}",
        )

    @property
    def _role(self) -> str:
        return self.owner.role.value

    def _write(self, keys: Mapping[str, bytes]) -> None:
        """Write the keys with their owner, so that a copied file is recognised."""
        holder = {"federation": self.owner.federation, self._role: self.owner.name}
        written = holder | {key: keys[key].hex() for key in self.keys}
        write_secret(self.path, json.dumps(written, indent=2).encode())


MIN_PASSWORD_LENGTH = 8  # characters: the file holds a private key
COPY_WARNING = (
    "This file is a copy of your private key: delete it after the import. Export again after each renewal. "
    "If the file is lost or stolen, ask the operator to revoke your certificate."
)


def export_pkcs12(profile: Path, out: Path, authorities: Path | None, password: str) -> None:
    """Write a PKCS #12 file (RFC 7292) for Chromium, Firefox and Safari, and the authorities as PEM.

    Key, certificate and authorities are in the one password-protected file.

    A browser must trust the authorities before it accepts the coordinator's certificate.

    Raises:
        RequestError: not enrolled, a file exists already, or the password is too short.
        PeerError: the certificate has expired. InternalError: code `storage`.
    """
    if len(password) < MIN_PASSWORD_LENGTH:
        raise RequestError(
            Code.BAD_ARGUMENT, f"the password must have at least {MIN_PASSWORD_LENGTH} characters"
        )
    for path in (out, *([] if authorities is None else [authorities])):
        check_new(path)
    stored = load_identity(profile)
    key, certificate = read_pair(profile)
    name = f"{stored.identity.name} at {stored.identity.federation}".encode()
    issuers = stored.authorities.issuers
    protected = BestAvailableEncryption(password.encode())
    write_secret(out, pkcs12.serialize_key_and_certificates(name, key, certificate, issuers, protected))
    if authorities is not None:
        write_durably(authorities, stored.ca_pem)
