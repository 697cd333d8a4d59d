"""`eigenveil enrol`, `eigenveil doctor`, `eigenveil identity`, `eigenveil key` and `eigenveil profile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.analyst.options import profile_and_json_options
from eigenveil_common.command import FILE, is_interactive, print_result
from eigenveil_common.files import check_output, write_durably

if TYPE_CHECKING:
    from eigenveil.key_cards import AnalystKeyCard


@click.command()
@click.option("--join", "join", type=FILE, required=True, help="Your join file.")
@profile_and_json_options
def enrol(join: Path, profile: Path | None, as_json: bool) -> None:
    """Enrol as an analyst or operator with the join file that the coordinator's operator gave you."""
    from eigenveil.identity import Role
    from eigenveil_client.analyst.profile import SigningKey, default_profile, next_command, proxy_rule
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
        f"{identity.key_comparison_text(stored.key_print)}"
    )
    if stored.identity.role is Role.ANALYST:
        key_card, export = SigningKey.make(folder).key_card, next_command(profile, "key", "export")
        value |= {"signing": key_card_value(key_card)}
        text += (
            f"\nThe key that signs your studies:  {key_card.fingerprint}\n"
            f"Send its key card to the sites, and read this fingerprint to their staff by telephone: {export}"
        )
    print_result(value, as_json, text)


@click.command()
@profile_and_json_options
def doctor(profile: Path | None, as_json: bool) -> int:
    """Check your profile and the connection to the coordinator, one line each.

    Only a greeting is sent. Exit code 1 if a check failed."""
    from eigenveil_client.analyst.profile import KEY_FILE, check_key, default_profile, proxy_rule
    from eigenveil_client.connection.doctor import check_files, identity_and_network
    from eigenveil_common.doctor import examine, show

    folder = profile or default_profile()
    key = folder / KEY_FILE
    checks = [
        check_files(folder, *([key] if key.exists() else [])),
        examine("signing key", lambda: check_key(folder)),
        *identity_and_network(folder, lambda: proxy_rule(folder)),
    ]
    return show(checks, as_json)


@click.group()
def identity() -> None:
    """Export your key and certificate for other programs."""


@identity.command()
@click.option("--p12", type=FILE, required=True, help="Where to write it.")
@click.option("--ca", type=FILE, help="Also write the authorities here, as PEM.")
@click.password_option(
    envvar="EIGENVEIL_P12_PASSWORD", prompt="A password for the file", help="Asked for if left out."
)
@profile_and_json_options
def export(p12: Path, ca: Path | None, password: str, profile: Path | None, as_json: bool) -> None:
    """Write a file for your browser, with which it opens the coordinator's console in your name."""
    from eigenveil_client.analyst.profile import default_profile
    from eigenveil_client.connection import key_files

    key_files.export_pkcs12(profile or default_profile(), p12, ca, password)
    value = {"p12": str(p12), "ca": None if ca is None else str(ca)}
    print_result(value, as_json, f"Wrote {p12}\n{key_files.COPY_WARNING}")


@click.group()
def key() -> None:
    """The key with which you sign studies. Copy it to your own devices only.

    Each site imports your key card as a file, and its staff compare its fingerprint with you by telephone.
    The coordinator is not involved, so it cannot submit studies in your name."""


@key.command()
@profile_and_json_options
def show(profile: Path | None, as_json: bool) -> None:
    """Show the fingerprint to read to the staff of a site, when they call you.

    The first call creates the key. A new key after a loss has another fingerprint: every site must import its
    key card with --replace, and confirm it."""
    from eigenveil_client.analyst.profile import SigningKey, default_profile

    key_card = SigningKey.make(profile or default_profile()).key_card
    print_result(key_card_value(key_card), as_json, fingerprint_text(key_card))


@key.command("export")
@click.option("--out", type=FILE, help="Where to write the key card [default: NAME.analyst].")
@profile_and_json_options
def export_card(out: Path | None, profile: Path | None, as_json: bool) -> None:
    """Write your key card, the file that sites import. It holds no secret.

    The first call creates the key; later calls write the same key card."""
    from eigenveil.key_cards import cards_to_file
    from eigenveil_client.analyst.profile import SigningKey, default_profile

    signing_key = SigningKey.make(profile or default_profile())
    out = out or Path(f"{signing_key.key_card.analyst}.analyst")
    check_output(out)
    write_durably(out, cards_to_file([signing_key.signed]))
    message = (
        f"wrote {out}: send it to the staff of the sites, for instance by mail; it holds no secret. They "
        f"import it: eigenveil-site analysts import {out.name} --config site.toml\n"
        f"{fingerprint_text(signing_key.key_card)}\n"
        "Do not send these digits. The staff of each site call you, at a number that they did not get with "
        "the file, and type the digits that you read to them. This proves that the file is yours."
    )
    print_result({"out": str(out), **key_card_value(signing_key.key_card)}, as_json, message)


def key_card_value(key_card: AnalystKeyCard) -> dict[str, Any]:
    """Return an analyst's key card as plain values, with the fingerprint for the sites."""
    return {
        "analyst": key_card.analyst,
        "federation": key_card.federation,
        "key_card": key_card.digest,
        "fingerprint": key_card.fingerprint,
    }


def fingerprint_text(key_card: AnalystKeyCard) -> str:
    """Return the fingerprint of an analyst's key card, to be read out."""
    return (
        f"The fingerprint of {key_card.analyst} in federation {key_card.federation}:\n\n"
        f"    {key_card.fingerprint}\n"
    )


@click.group("profile")
def profile_group() -> None:
    """Your name, institution and approval, for the people who decide about your studies.

    With your contact and the legal basis, they are in each study that you submit and that does not state them
    itself. You sign them with it, no program checks them, and its release has them for ever. A name needs
    version 1.1 at every site that counts."""


@profile_group.command("show")
@profile_and_json_options
def show_applicant(profile: Path | None, as_json: bool) -> None:
    """Show what your studies state about you."""
    from eigenveil.study.checks import plain_fields
    from eigenveil_client.analyst.profile import default_profile, next_command, stored_applicant

    applicant = stored_applicant(profile or default_profile())
    lines = [f"{label}: {text}" for label, text in applicant.stated.items()]
    none = f"Nothing is stated. State it with: {next_command(profile, 'profile', 'set')}"
    print_result(plain_fields(applicant), as_json, "\n".join(lines) or none)


@profile_group.command("set")
@click.option("--full-name", help="Your name, such as Dr. Ada Example.")
@click.option("--institution", help="Where you work.")
@click.option("--contact", help="A mail address or telephone number for questions.")
@click.option("--ethics-reference", help="Reference of the ethics approval.")
@click.option("--legal-basis", help="Legal basis of your studies.")
@profile_and_json_options
def set_applicant(profile: Path | None, as_json: bool, **texts: str | None) -> None:
    """Change what your studies state about you. An empty text removes one.

    Without options you are prompted for each, at a terminal; Enter leaves it as it is."""
    from eigenveil.study.applicant import LABELS
    from eigenveil.study.checks import plain_fields
    from eigenveil_client.analyst.applicant import store_applicant
    from eigenveil_client.analyst.profile import default_profile, stored_applicant

    folder = profile or default_profile()
    changes = {name: text for name, text in texts.items() if text is not None}
    if not changes:
        if not is_interactive(as_json):
            raise click.UsageError("state at least one text, such as --institution; there is no prompt here")
        before = plain_fields(stored_applicant(folder))
        changes = {name: click.prompt(label, before[name], err=True) for name, label in LABELS.items()}
    applicant = store_applicant(folder, changes)
    lines = [f"{label}: {text}" for label, text in applicant.stated.items()]
    print_result(plain_fields(applicant), as_json, "\n".join(lines) or "Nothing is stated.")


COMMANDS = (enrol, doctor, identity, key, profile_group)
