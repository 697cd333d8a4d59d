"""Where an analyst's identity lives, and how to go on with it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil_client.analyst.options import VARIABLE
from eigenveil_client.connection import identity
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_common import config
from eigenveil_common.command import typed
from eigenveil_common.files import is_there


def default_profile() -> Path:
    """$EIGENVEIL_PROFILE, or eigenveil in the user's configuration folder."""
    stated = os.environ.get(VARIABLE)
    if stated:
        return Path(stated)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "eigenveil"


def load_profile(profile: Path | None) -> StoredIdentity:
    """The analyst's identity, and the proxy that the profile's own profile.toml names.

    Raises:
        RequestError: not enrolled, or the identity is a site's: its daemon alone speaks for it.
        PeerError: the certificate has ended.
    """
    folder = profile or default_profile()
    stored = identity.load_identity(folder)
    if stored.identity.role is Role.SITE:
        raise RequestError(Code.BAD_CONFIG, f"{folder} holds a site's identity; name an analyst's profile")
    return replace(stored, proxy=proxy_rule(folder))


def proxy_rule(folder: Path) -> ProxyRule:
    """The way to the coordinator that profile.toml names, which has no other keys and need not be there:
    deploy/config/profile.example.toml explains them.

    Raises:
        RequestError: code `bad-config`.
    """
    path = folder / "profile.toml"
    return config.load(path, ProxyRule) if is_there(path) else DIRECT


def follow(profile: Path | None, *words: str) -> str:
    """The command `eigenveil WORDS` for whoever goes on with this profile."""
    stated = () if profile is None or profile == default_profile() else ("--profile", profile)
    return typed("eigenveil", *words, *stated)
