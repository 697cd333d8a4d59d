"""`eigenveil enrol` and `eigenveil doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eigenveil_client.analyst.options import at_profile
from eigenveil_common.command import say


@click.command()
@click.option(
    "--join", "join", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Your join file."
)
@at_profile
def enrol(join: Path, profile: Path | None, as_json: bool) -> None:
    """Enrol as an analyst or operator with the join file that the coordinator's operator gave you."""
    from eigenveil.identity import Role
    from eigenveil_client.analyst.profile import default_profile, proxy_rule
    from eigenveil_client.connection import identity

    folder = profile or default_profile()
    stored = identity.enrol(join, folder, (Role.ANALYST, Role.OPERATOR), proxy_rule(folder))
    value: dict[str, Any] = {
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
    if stored.identity.role is Role.ANALYST:
        signing, told = _signing_key(folder, profile)
        value |= {"signing": signing}
        text += f"\n{told}"
    say(value, as_json, text)


def _signing_key(folder: Path, profile: Path | None) -> tuple[dict[str, Any], str]:
    """The key that signs this analyst's studies, made now, and what is to be done with it."""
    from eigenveil_client.analyst.profile import follow
    from eigenveil_client.analyst.signing.key_commands import card_value
    from eigenveil_client.analyst.signing.signing_key import SigningKey

    card = SigningKey.make(folder).card
    export = follow(profile, "key", "export")
    told = (
        f"The key that signs your studies:  {card.fingerprint}\n"
        f"Send its card to the sites, and read these digits to their people: {export}"
    )
    return card_value(card), told


@click.command()
@at_profile
def doctor(profile: Path | None, as_json: bool) -> int:
    """Check your profile and the way to the coordinator, one line each.

    Nothing is sent but a greeting. Exit code 1 if a check failed.
    """
    from eigenveil_client.analyst.profile import default_profile, proxy_rule
    from eigenveil_client.analyst.signing.signing_key import NAME, check_key
    from eigenveil_client.connection.doctor import files, identity_and_network
    from eigenveil_common.doctor import examine, show

    folder = profile or default_profile()
    key = folder / NAME
    checks = [
        files(folder, *([key] if key.exists() else [])),
        examine("signing key", lambda: check_key(folder)),
        *identity_and_network(folder, lambda: proxy_rule(folder)),
    ]
    return show(checks, as_json)


@click.group()
def identity() -> None:
    """Your key and certificate, for other programs."""


@identity.command()
@click.option(
    "--p12", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Where to write it."
)
@click.option(
    "--ca", type=click.Path(path_type=Path, dir_okay=False), help="Write the authorities here as well, PEM."
)
@click.password_option(
    envvar="EIGENVEIL_P12_PASSWORD", prompt="A password for the file", help="Asked for if left out."
)
@at_profile
def export(p12: Path, ca: Path | None, password: str, profile: Path | None, as_json: bool) -> None:
    """Write a file that a browser imports, so that it may open the coordinator's console as you."""
    from eigenveil_client.analyst.profile import default_profile
    from eigenveil_client.connection import browser

    browser.export(profile or default_profile(), p12, ca, password)
    value = {"p12": str(p12), "ca": None if ca is None else str(ca)}
    say(value, as_json, f"Wrote {p12}\n{browser.COPIED}")


COMMANDS = (enrol, doctor, identity)
