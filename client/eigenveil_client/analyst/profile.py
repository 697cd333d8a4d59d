"""An analyst's profile: the folder of the identity, its settings, and the key that signs studies. The
coordinator issues certificates, but cannot issue this key: the staff of a site compare the key's fingerprint
with its owner by telephone."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil.key_cards import AnalystKeyCard, SignedAnalystKeyCard
from eigenveil.study.applicant import NOT_STATED, Applicant
from eigenveil_client.analyst.options import VARIABLE
from eigenveil_client.connection import identity
from eigenveil_client.connection.identity import StoredIdentity, folder_identity
from eigenveil_client.connection.key_files import KeyFile
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_common import config
from eigenveil_common.command import shell_command
from eigenveil_common.doctor import Check, ok, warn
from eigenveil_common.files import path_exists


def default_profile() -> Path:
    """Return $EIGENVEIL_PROFILE, or eigenveil in the user's configuration folder."""
    stated = os.environ.get(VARIABLE)
    if stated:
        return Path(stated)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "eigenveil"


def load_profile(profile: Path | None) -> StoredIdentity:
    """Return the analyst's identity, with the proxy from its profile.toml."""
    folder = profile or default_profile()
    stored = identity.load_identity(folder)
    if stored.identity.role is Role.SITE:
        raise RequestError(Code.BAD_CONFIG, f"{folder} holds a site's identity. Name an analyst's profile")
    return replace(stored, proxy=proxy_rule(folder))


PROFILE = "profile.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConfig:
    """Content of profile.toml, which is optional: the keys of the proxy, and the table [applicant].
    deploy/config/profile.example.toml explains them."""

    proxy_rule: ProxyRule = DIRECT
    applicant: Applicant = config.section(NOT_STATED)  # noqa: RUF009 - frozen


def _load_config(folder: Path) -> ProfileConfig:
    path = folder / PROFILE
    return config.load(path, ProfileConfig) if path_exists(path) else ProfileConfig()


def proxy_rule(folder: Path) -> ProxyRule:
    """Return the proxy settings in profile.toml. Raises RequestError: code `bad-config`, an invalid key."""
    return _load_config(folder).proxy_rule


def stored_applicant(folder: Path) -> Applicant:
    """Return the applicant in profile.toml. Raises as `proxy_rule`, and code `bad-study` for its texts."""
    return _load_config(folder).applicant


def next_command(profile: Path | None, *arguments: str) -> str:
    """Return the command `eigenveil ARGUMENTS` for this profile, to be shown to the user."""
    stated = () if profile is None or profile == default_profile() else ("--profile", profile)
    return shell_command("eigenveil", *arguments, *stated)


KEY_FILE = "analyst.key"
SIGNING = "signing"
LOST_KEY_ADVICE = (
    "run `eigenveil key export`, which creates a new one. Every site must then import its key card with "
    "--replace and confirm its fingerprint by telephone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """An analyst's private key, and its key card for the sites."""

    signing: Ed25519PrivateKey
    key_card: AnalystKeyCard

    @classmethod
    def read(cls, folder: Path) -> SigningKey:
        """Return the key in an identity's folder.

        Raises:
            RequestError: code `not-found`, there is none; `bad-config`, the folder holds no analyst's
                identity, or the file is a link, damaged, another analyst's, or readable by others.
            InternalError: code `storage`."""
        file = _file(folder)
        if not file.made:
            todo = "or create a key with eigenveil key export and have every site confirm it"
            why = f"there is no signing key in {folder}, so nothing was signed"
            raise RequestError(Code.NOT_FOUND, f"{why}. Restore a copy of {KEY_FILE}, {todo}")
        raw, owner = file.read()[SIGNING], file.owner
        try:
            signing = Ed25519PrivateKey.from_private_bytes(raw)
        except ValueError as problem:
            raise file.damaged() from problem
        public = signing.public_key().public_bytes_raw()
        key_card = AnalystKeyCard(federation=owner.federation, analyst=owner.name, signing=public)
        return cls(signing=signing, key_card=key_card)

    @classmethod
    def make(cls, folder: Path) -> SigningKey:
        """Create a key, durable on return, and return it; an existing one stays. Only enrolment and
        `eigenveil key` create one, so that the loss of a key is noticed."""
        _file(folder).make(lambda: {SIGNING: Ed25519PrivateKey.generate().private_bytes_raw()})
        return cls.read(folder)

    @property
    def signed(self) -> SignedAnalystKeyCard:
        """The signed key card for the sites; the same bytes each time."""
        return SignedAnalystKeyCard.of(self.key_card, self.signing.sign)


def key_exists(folder: Path) -> bool:
    """Return True if this folder has a key. Raises as `SigningKey.read`."""
    return _file(folder).made


def check_key(folder: Path) -> Check:
    """Check the signing key in this folder; only an analyst has one. Raises as `SigningKey.read`."""
    owner = folder_identity(folder)
    if owner is not None and owner.role is not Role.ANALYST:
        return ok("signing key", "none: only analysts sign studies")
    if not key_exists(folder):
        todo = "create it, and send its key card to the sites: eigenveil key export"
        return warn("signing key", "not created yet", todo)
    return ok("signing key", f"sites know it by {SigningKey.read(folder).key_card.fingerprint}")


def _file(folder: Path) -> KeyFile:
    """Return the key file of the analyst in `folder`, also with an expired certificate."""
    owner = folder_identity(folder)
    if owner is None or owner.role is not Role.ANALYST:
        todo = "Enrol with a join file from the coordinator's operator"
        raise RequestError(Code.BAD_CONFIG, f"{folder} holds no analyst's identity. {todo}")
    return KeyFile(folder=folder, name=KEY_FILE, owner=owner, keys=(SIGNING,), recovery=LOST_KEY_ADVICE)
