"""Private keys of a party in its identity's folder, and export of an identity for a browser. Keys are made
once and on this machine. They are independent of certificates and outlive them, because other people have
compared their fingerprints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity
from eigenveil.numerics.encoding import parse_json
from eigenveil.signatures import check_format, formatted, is_newer
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

KEYS_FORMAT = "eigenveil-keys/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """The file `name` in the folder of the identity `owner`, with the raw private keys called `keys`.
    `recovery` says what to do if no copy is left: a clause that names a command."""

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
        """True if the path exists, also as a broken link."""
        return self.path.is_symlink() or path_exists(self.path)

    def make(self, generate: Callable[[], Mapping[str, bytes]]) -> None:
        """Write the raw keys that `generate` draws, durable on return; an existing file stays."""
        check_owner(self.folder)
        with locked(self.folder):  # only one of two parallel commands writes
            if not self.made:
                # with their owner, so that a copied file is recognised
                holder, keys = {"federation": self.owner.federation, self._role: self.owner.name}, generate()
                written = formatted(KEYS_FORMAT, holder | {key: keys[key].hex() for key in self.keys})
                write_secret(self.path, json.dumps(written, indent=2).encode())

    def read(self) -> Mapping[str, bytes]:
        """Return the raw private keys, by name."""
        if self.path.is_symlink():
            why = f"{self.path} is a link, but a private key must be a file: put the file itself there"
            raise RequestError(Code.BAD_CONFIG, why)
        try:
            stored = parse_json(read_secret(self.path))
            check_format(stored, KEYS_FORMAT, f"the key file {self.path}")
            holder = stored["federation"], stored[self._role]
            found = {key: bytes.fromhex(stored[key]) for key in self.keys}
        except (ValueError, KeyError, TypeError, PeerError) as problem:
            if is_newer(problem):
                raise
            raise self.damaged() from problem
        if holder != (self.owner.federation, self.owner.name):
            other = f"belongs to {self._role} {holder[1]} in federation {holder[0]}"
            why = f"but this is {self.owner.uri}; two {self._role}s must not share keys"
            todo = f"Move the file elsewhere, then {self.recovery}"
            raise RequestError(Code.BAD_CONFIG, f"{self.path} {other}, {why}. {todo}")
        return found

    def damaged(self) -> RequestError:
        """Return the error of a file without readable keys."""
        todo = f"restore it from a backup. Without one, move it elsewhere, then {self.recovery}"
        return RequestError(Code.BAD_CONFIG, f"{self.path} is damaged: {todo}")

    @property
    def _role(self) -> str:
        return self.owner.role.value


MIN_PASSWORD_LENGTH = 8  # characters: the file holds a private key
COPY_WARNING = (
    "This file is a copy of your private key: delete it after the import. Export again after each renewal. "
    "If the file is lost or stolen, ask the operator to revoke your certificate."
)


def export_pkcs12(profile: Path, out: Path, authorities: Path | None, password: str) -> None:
    """Write key, certificate and authorities as one PKCS #12 file (RFC 7292), and the authorities as PEM. A
    browser must trust the authorities before it accepts the coordinator's certificate."""
    if len(password) < MIN_PASSWORD_LENGTH:
        why = f"the password must have at least {MIN_PASSWORD_LENGTH} characters"
        raise RequestError(Code.BAD_ARGUMENT, why)
    for path in filter(None, (out, authorities)):
        check_new(path)
    stored = load_identity(profile)
    key, certificate = read_pair(profile)
    name = f"{stored.identity.name} at {stored.identity.federation}".encode()
    issuers = stored.authorities.issuers
    protected = BestAvailableEncryption(password.encode())
    write_secret(out, pkcs12.serialize_key_and_certificates(name, key, certificate, issuers, protected))
    if authorities is not None:
        write_durably(authorities, stored.ca_pem)
