"""The key with which an analyst signs studies: the analyst's own, made on this machine and for no other.

A certificate is the coordinator's word. This key it cannot make: the people of a site compare the key's
digits with its owner, by telephone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.analyst_signature.authorization import SignedAuthorization, authorize
from eigenveil.analyst_signature.card import AnalystCard, SignedAnalystCard, sign_analyst_card
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.protocol.plan import Plan
from eigenveil_client.connection.identity import named
from eigenveil_client.connection.key_file import KeyFile
from eigenveil_common.doctor import Check, ok, warn

NAME = "analyst.key"
SIGNING = "signing"
LOST = (
    "run `eigenveil key export`, which makes a new one: every site must then import its card with --replace "
    "and confirm its digits, by telephone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """An analyst's private key, and the card that sites are given."""

    signing: Ed25519PrivateKey
    card: AnalystCard

    @classmethod
    def read(cls, folder: Path) -> SigningKey:
        """The key in an identity's folder.

        Raises:
            RequestError: code `not-found`, there is none; `bad-config`, the folder holds no analyst's
                identity, or the file is a link, damaged, another analyst's, or can be read by others.
            InternalError: code `storage`.
        """
        file = _file(folder)
        if not file.made:
            raise RequestError(
                Code.NOT_FOUND,
                f"there is no key to sign with in {folder}; nothing was signed. If there was one, put {NAME} "
                "back from a copy; else make it, and have every site confirm it: eigenveil key export",
            )
        return _read(file)

    @classmethod
    def make(cls, folder: Path) -> SigningKey:
        """A new key, durable on return; one that is there already stays.

        Only enrolment and `eigenveil key` make one: whoever lost a key must notice.

        Raises:
            RequestError: code `bad-config`, as `read`, and root in another user's folder.
            InternalError: code `storage`.
        """
        _file(folder).make(_fresh)
        return cls.read(folder)

    @property
    def signed(self) -> SignedAnalystCard:
        """What sites are given; the same bytes each time."""
        return sign_analyst_card(self.card, self.signing.sign)

    def authorize(self, plan: Plan, expires: int) -> SignedAuthorization:
        """The analyst's statement that this plan runs, until the Unix time `expires`.

        Raises:
            RequestError: code `authorization`, the plan is in another's name.
        """
        return authorize(plan, self.signed, expires, self.signing.sign)


def made(folder: Path) -> bool:
    """Whether a key was made in this folder. Raises as `SigningKey.read`."""
    return _file(folder).made


def check_key(folder: Path) -> Check:
    """Whether studies can be signed in this folder; only an analyst's can. Raises as `SigningKey.read`."""
    owner = named(folder)
    if owner is not None and owner.role is not Role.ANALYST:
        return ok("signing key", "none: an analyst alone signs studies")
    if not made(folder):
        todo = "make it, and send its card to the sites: eigenveil key export"
        return warn("signing key", "none was made yet", todo)
    return ok("signing key", f"sites know it by {SigningKey.read(folder).card.fingerprint}")


def _file(folder: Path) -> KeyFile:
    return KeyFile(folder=folder, name=NAME, owner=_analyst_in(folder), keys=(SIGNING,), lost=LOST)


def _analyst_in(folder: Path) -> Identity:
    """The analyst whose identity `folder` holds, whether or not its certificate is still good.

    Raises:
        RequestError: code `bad-config`, it is none.
    """
    owner = named(folder)
    if owner is None or owner.role is not Role.ANALYST:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{folder} holds no analyst's identity; enrol with a join file from the coordinator's operator",
        )
    return owner


def _fresh() -> dict[str, bytes]:
    """A key from the system's randomness."""
    return {SIGNING: Ed25519PrivateKey.generate().private_bytes_raw()}


def _read(file: KeyFile) -> SigningKey:
    raw = file.read()[SIGNING]
    try:
        signing = Ed25519PrivateKey.from_private_bytes(raw)
    except ValueError as problem:
        raise file.damaged() from problem
    card = AnalystCard(
        federation=file.owner.federation,
        analyst=file.owner.name,
        signing=signing.public_key().public_bytes_raw(),
    )
    return SigningKey(signing=signing, card=card)
