"""The coordinator's own secrets: release signatures, HMACs of contributions, the CA."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.accounting.checkpoint import CHECKPOINT_SIGNED
from eigenveil.errors import Code, RequestError
from eigenveil.protocol.signatures import PLAN_SIGNED
from eigenveil_common.files import read_secret, write_secret
from eigenveil_server.config import Files
from eigenveil_server.pki.authority import Authority, key_to_pem, new_key
from eigenveil_server.pki.authority_files import Authorities

RAW_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What signs, what authenticates, what certifies."""

    authorities: Authorities
    release: Ed25519PrivateKey
    audit: bytes

    @property
    def authority(self) -> Authority:
        return self.authorities.issuing

    @property
    def release_public(self) -> bytes:
        """Raw Ed25519 public key (32 bytes) that verifies plans and releases."""
        return self.release.public_key().public_bytes_raw()

    def sign_plan(self, plan_json: bytes) -> bytes:
        """The signature that a site checks before it reads a plan [R4]."""
        return self.release.sign(PLAN_SIGNED + plan_json)

    def sign_head(self, checkpoint_json: bytes) -> bytes:
        """The signature under the ledger's end that sites keep [R20]."""
        return self.release.sign(CHECKPOINT_SIGNED + checkpoint_json)

    def mac(self, contribution_digest: str) -> bytes:
        """What is stored of a contribution: without the key it confirms no guess about its values."""
        return hmac.digest(self.audit, bytes.fromhex(contribution_digest), "sha256")


def create_keys(files: Files) -> ec.EllipticCurvePrivateKey:
    """Make every secret anew and store it in `files` (which hold none yet); the first authority's key."""
    key, release = new_key(), Ed25519PrivateKey.generate()
    write_secret(files.ca_key, key_to_pem(key))
    write_secret(files.release_key, release.private_bytes_raw())
    write_secret(files.audit_key, secrets.token_bytes(32))
    return key


def release_public(files: Files) -> bytes:
    """The public half of the release key (raw).

    Raises:
        RequestError: the file is missing, damaged, or readable by others.
    """
    return Ed25519PrivateKey.from_private_bytes(_raw(files.release_key)).public_key().public_bytes_raw()


def _raw(path: Path) -> bytes:
    raw = read_secret(path)
    if len(raw) != RAW_BYTES:
        raise RequestError(Code.BAD_CONFIG, f"{path} does not have {RAW_BYTES} bytes")
    return raw


def load_keys(files: Files) -> Keys:
    """The secrets in `files`.

    Raises:
        RequestError: one is missing, damaged, or readable by others.
    """
    release, audit = Ed25519PrivateKey.from_private_bytes(_raw(files.release_key)), _raw(files.audit_key)
    authorities = Authorities(files)
    if authorities.held.release_key != release.public_key().public_bytes_raw():
        raise RequestError(
            Code.BAD_CONFIG,
            f"{files.release_key} is not the release key that the list of authorities names; restore both "
            "from the backup",
        )
    return Keys(authorities=authorities, release=release, audit=audit)
