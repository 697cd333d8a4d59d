"""`eigenveil enrol` and `doctor`, and where an analyst's identity lives."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from eigenveil.identity import Role
from eigenveil_client.connection import identity
from eigenveil_client.connection.doctor import files, identity_and_network
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_common import config
from eigenveil_common.command import say, typed
from eigenveil_common.doctor import show
from eigenveil_common.files import is_there

VARIABLE = "EIGENVEIL_PROFILE"


def default_profile() -> Path:
    """$EIGENVEIL_PROFILE, or eigenveil in the user's configuration folder."""
    stated = os.environ.get(VARIABLE)
    if stated:
        return Path(stated)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "eigenveil"


def load_profile(profile: Path | None) -> StoredIdentity:
    """The analyst's identity, and the proxy that the profile's own profile.toml names.

    Raises:
        RequestError: not enrolled. PeerError: the certificate has ended.
    """
    folder = profile or default_profile()
    return replace(identity.load_identity(folder), proxy=proxy_rule(folder))


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


profile_option = click.option(
    "--profile",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder of your identity [default: ${VARIABLE} or ~/.config/eigenveil].",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def at_profile(command: Callable[..., Any]) -> Callable[..., Any]:
    """Both options."""
    return profile_option(json_option(command))


@click.command()
@click.option(
    "--join", "join", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Your join file."
)
@at_profile
def enrol(join: Path, profile: Path | None, as_json: bool) -> None:
    """Enrol as an analyst or operator with the join file that the coordinator's operator gave you."""
    folder = profile or default_profile()
    stored = identity.enrol(join, folder, (Role.ANALYST, Role.OPERATOR), proxy_rule(folder))
    value = {
        "identity": stored.identity.uri,
        "coordinator": stored.coordinator,
        "profile": str(folder),
        "expires": stored.expires.isoformat(),
        "key_sha256": stored.key_print,
    }
    text = (
        f"Enrolled as {stored.identity.uri}\n"
        f"The certificate in {folder} is good until {stored.expires:%Y-%m-%d %H:%M} UTC.\n"
        f"{identity.compared(stored.key_print)}"
    )
    say(value, as_json, text)


@click.command()
@at_profile
def doctor(profile: Path | None, as_json: bool) -> int:
    """Check your profile and the way to the coordinator, one line each.

    Nothing is sent but a greeting. Exit code 1 if a check failed.
    """
    folder = profile or default_profile()
    checks = [files(folder), *identity_and_network(folder, lambda: proxy_rule(folder))]
    return show(checks, as_json)
