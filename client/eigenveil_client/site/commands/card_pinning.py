"""Import, confirmation and listing of key cards, for both kinds of owners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.site.commands.terminal import decider_name
from eigenveil_common.command import is_interactive, print_result
from eigenveil_common.files import read

if TYPE_CHECKING:
    from eigenveil.key_cards.key_card import AnyCard, SignedKeyCard
    from eigenveil_client.site.config import SiteConfig
    from eigenveil_client.site.roster.pins import RosterKind

REPLACE = click.option(
    "--replace", "replacing", is_flag=True, help="Also replace confirmed cards; telephone first."
)
FINGERPRINT = click.option("--fingerprint", "digits", help="The 40 digits, as heard [default: prompt].")


def import_card_files(
    kind: RosterKind[AnyCard],
    config_file: Path,
    files: Sequence[Path],
    *,
    replacing: bool,
    as_json: bool,
    this_site: AnyCard | None = None,
) -> None:
    """Import the cards in `files` and print the result of each. Raises as `Roster.import_cards`."""
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.roster import roster
    from eigenveil_client.site.roster.roster import Roster
    from eigenveil_client.site.roster.site_keys import site_identity

    config = site_config.load(config_file)
    folder = config.identity
    cards = [card for path in files for card in _read_cards(kind, path)]
    key_roster = Roster(kind, folder)
    outcomes = key_roster.import_cards(
        cards, site_identity(folder).federation, this_site, replacing=replacing
    )
    note_cards(config)
    view = roster.import_outcomes(outcomes, key_roster.content())
    print_result(view, as_json, roster.import_text(kind, view, config_file))


def note_cards(config: SiteConfig) -> None:
    """Record the removed cards in the state; without a state the daemon does it when it starts."""
    from eigenveil_client.site.state.store_access import has_state, open_site_store

    if has_state(config):
        with open_site_store(config) as store:
            store.confirmed.note_cards(config.identity)


def _read_cards(kind: RosterKind[AnyCard], path: Path) -> tuple[SignedKeyCard[AnyCard], ...]:
    from eigenveil.errors import PeerError
    from eigenveil.key_cards.key_card import cards_from_file

    try:
        return cards_from_file(read(path), kind.read)
    except PeerError as problem:
        raise PeerError(problem.code, f"{path}: {problem}") from problem


def confirm_card_of(
    kind: RosterKind[AnyCard],
    config: SiteConfig,
    name: str,
    digits: str | None,
    by: str | None,
    *,
    as_json: bool,
) -> tuple[dict[str, Any], bool]:
    """Confirm the card of `name` by the digits heard; return the pin as plain values, and if it resolved a
    change. Raises as `Roster.confirm`."""
    from eigenveil_client.site.roster import roster
    from eigenveil_client.site.roster.roster import Roster
    from eigenveil_client.site.state.store_access import has_state, open_site_store

    key_roster, reader_name = Roster(kind, config.identity), kind.reader_name(name)
    before = key_roster.content().of(name)
    if digits is None and not is_interactive(as_json):
        raise click.UsageError(
            "there is no prompt (no terminal, or --json); add --fingerprint 'DIGITS', as heard from "
            f"{reader_name}"
        )
    decider = decider_name(by, ask=not as_json)
    if digits is None:
        digits = click.prompt(f"The 40 digits that {reader_name} read to you", value_proc=_parse_fingerprint)
    pin = key_roster.confirm(name, digits, decider)
    if has_state(config):  # else the daemon does it when it starts
        with open_site_store(config) as store:
            store.confirmed.note(kind)
    return roster.pin_row(kind, pin), before.conflict is not None


def _parse_fingerprint(text: str) -> str:
    """Return the typed digits; prompt again if their number is wrong."""
    from eigenveil.errors import RequestError
    from eigenveil.key_cards.key_card import typed_fingerprint

    try:
        return typed_fingerprint(text)
    except RequestError as problem:
        raise click.UsageError(str(problem)) from problem


def show_pins(owner: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print a table of pins."""
    from eigenveil_client.site.commands.terminal import moment, plain, show, table

    listing = table(owner, "standing", "digits", "confirmed (UTC)", "by")
    for row in rows:
        when = "" if row["confirmed"] is None else moment(row["confirmed"])
        listing.add_row(
            row[owner], row["standing"], row["fingerprint"] or "not confirmed", when, *plain(row["by"] or "")
        )
    show(listing)
