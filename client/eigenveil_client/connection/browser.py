"""An identity for a browser: key, certificate and authorities in one file under a password."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from eigenveil.errors import Code, RequestError
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.identity_files import read_pair
from eigenveil_common.files import check_new, write_durably, write_secret

SHORTEST = 8  # characters: the file is a key, and lies about in a folder of downloads
COPIED = (
    "This file is a copy of your key: delete it once the browser has it. After a renewal the browser needs a "
    "new one; if it is lost, have the operator deny you."
)


def export(profile: Path, out: Path, authorities: Path | None, password: str) -> None:
    """Write PKCS #12 (RFC 7292) that Chromium, Firefox and Safari import, and the authorities as PEM, which
    a browser must trust before it believes the coordinator.

    Raises:
        RequestError: not enrolled, a file is there already, or the password is too short.
        PeerError: the certificate has ended. InternalError: code `storage`.
    """
    if len(password) < SHORTEST:
        raise RequestError(Code.BAD_ARGUMENT, f"the password must have at least {SHORTEST} characters")
    for path in (out, *([] if authorities is None else [authorities])):
        check_new(path)
    held = load_identity(profile)
    key, certificate = read_pair(profile)
    name = f"{held.identity.name} at {held.identity.federation}".encode()
    issuers = held.authorities.issuers
    protected = BestAvailableEncryption(password.encode())
    write_secret(out, pkcs12.serialize_key_and_certificates(name, key, certificate, issuers, protected))
    if authorities is not None:
        write_durably(authorities, held.ca_pem)
