"""`eigenveil key`: show, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.analyst.options import at_profile
from eigenveil_common.command import FILE, say
from eigenveil_common.files import check_output, write_durably

if TYPE_CHECKING:
    from eigenveil.analyst_signature.card import AnalystCard


@click.group()
def key() -> None:
    """The key with which you sign studies: your own, on this machine alone.

    Each site takes in your card as a file, and its people compare its digits with you by telephone. Nothing
    of it goes through the coordinator, which so cannot ask in your name.
    """


@key.command()
@at_profile
def show(profile: Path | None, as_json: bool) -> None:
    """Show the digits to read to the people of a site, when they call you.

    The first time it makes the key. If it is lost, a new one has other digits: every site must import its
    card with --replace, and confirm it.
    """
    from eigenveil_client.analyst.profile import default_profile
    from eigenveil_client.analyst.signing.signing_key import SigningKey

    own = SigningKey.make(profile or default_profile()).card
    say(card_value(own), as_json, digits_text(own))


@key.command()
@click.option("--out", type=FILE, help="Where to write the card [default: NAME.analyst].")
@at_profile
def export(out: Path | None, profile: Path | None, as_json: bool) -> None:
    """Write your card, the file that sites import: it holds no secret.

    The first time it makes the key; then it is the same card each time.
    """
    from eigenveil.key_cards.card_file import cards_to_file
    from eigenveil_client.analyst.profile import default_profile
    from eigenveil_client.analyst.signing.signing_key import SigningKey

    own = SigningKey.make(profile or default_profile())
    out = out or Path(f"{own.card.analyst}.analyst")
    check_output(out)
    write_durably(out, cards_to_file([own.signed]))
    told = (
        f"wrote {out}: send it to the people of the sites, by mail if you like; it holds no secret. They "
        f"import it: eigenveil-site analysts import {out.name} --config site.toml\n{digits_text(own.card)}\n"
        "Do not send these. The people of each site call you, at a number that they did not get with the "
        "file, and type what you read to them: so they know that the file is yours."
    )
    say({"out": str(out), **card_value(own.card)}, as_json, told)


def card_value(card: AnalystCard) -> dict[str, Any]:
    """An analyst's card as plain values, with the digits that sites must hear."""
    return {
        "analyst": card.analyst,
        "federation": card.federation,
        "card": card.digest,
        "fingerprint": card.fingerprint,
    }


def digits_text(card: AnalystCard) -> str:
    """The digits of an analyst's card, for the person who reads them out."""
    return f"The digits of {card.analyst} in federation {card.federation}:\n\n    {card.fingerprint}\n"


COMMANDS = (key,)
