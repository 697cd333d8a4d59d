"""Key of a site for one masked study [R36]. A site makes it for the study, signs it with the key of its card,
and deletes it when the study has ended. A thief who takes the machine after that cannot remove the study's
masks, even with all its messages. The coordinator passes these keys on. It cannot make one: a site accepts a
key only if the confirmed card's key has signed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.errors import Code, PeerError
from eigenveil.key_cards import KEY_BYTES
from eigenveil.numerics.encoding import digest_of, is_digest
from eigenveil.signatures import Extensible, Sign, SignedStatement
from eigenveil.study.study import NAME

STUDY_KEY_SIGNED = b"eigenveil/study-key-signature/v1\n"
MOST_BYTES = 1024
PRIME = 2**255 - 19  # of the field of X25519
PROBE_KEY = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))  # public, only to test a public key


@dataclass(frozen=True, kw_only=True)
class StudyKey(Extensible):
    """Public key (`agreement`, raw X25519) of the site `site` for the study `plan`; `card` is the digest of
    the site's key card. A site can state any key, also another site's. So every key derived from a shared
    secret must depend on both statements. Raises PeerError: code `protocol`, a field is invalid."""

    format, noun = "eigenveil-study-key/1", "the site's key for a study"

    plan: str
    site: str
    card: str
    agreement: bytes

    def __post_init__(self) -> None:
        hexed = is_digest(self.plan) and is_digest(self.card)
        named = type(self.site) is str and NAME.fullmatch(self.site) is not None
        if not (hexed and named and _is_usable(self.agreement)):
            raise PeerError(Code.PROTOCOL, "the site's key for a study has an invalid field")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, `agreement` in hex."""
        return {**super().to_dict(), "agreement": self.agreement.hex()}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any], unknown: Mapping[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        return cls(**{**stated, "agreement": bytes.fromhex(stated["agreement"])}, unknown=unknown)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex), by which an attempt names it."""
        return digest_of("study-key", self.signed_json)

    def signed(self, sign: Sign) -> SignedStudyKey:
        """Return the key with the signature of its site's card, by `sign`."""
        return SignedStudyKey(
            signed_json=self.signed_json, signature=sign(STUDY_KEY_SIGNED + self.signed_json)
        )


class SignedStudyKey(SignedStatement[StudyKey]):
    """Signed key of a site for a study."""

    __slots__ = ()
    kind, prefix, most_bytes = StudyKey, STUDY_KEY_SIGNED, MOST_BYTES


def _is_usable(agreement: bytes) -> bool:
    """Return True if the key is below the field's prime and no point of low order. Such a point gives the
    secret 0 with every private key, so everybody would know the mask."""
    if len(agreement) != KEY_BYTES or int.from_bytes(agreement, "little") >= PRIME:
        return False
    try:
        PROBE_KEY.exchange(X25519PublicKey.from_public_bytes(agreement))
    except ValueError:
        return False
    return True
