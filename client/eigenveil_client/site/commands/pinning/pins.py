"""The commands that pin cards, for both kinds of owners: take in, confirm by digits, show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.site.commands.options import who_decides
from eigenveil_common.command import asks, say
from eigenveil_common.files import read

if TYPE_CHECKING:
    from eigenveil.key_cards.key_card import AnyCard, SignedKeyCard
    from eigenveil_client.site.config import SiteConfig
    from eigenveil_client.site.roster.kind import RosterKind

REPLACE = click.option(
    "--replace", "replacing", is_flag=True, help="Also in place of cards that were confirmed: after a call."
)
DIGITS = click.option("--fingerprint", "digits", help="The 40 digits, as heard [default: asked for].")


def take_cards(
    kind: RosterKind[AnyCard],
    config_file: Path,
    files: Sequence[Path],
    *,
    replacing: bool,
    as_json: bool,
    own: AnyCard | None = None,
) -> None:
    """Import the cards in `files`, and say what became of each. Raises as `Roster.take`."""
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.peers.keys import site_in
    from eigenveil_client.site.roster import views
    from eigenveil_client.site.roster.roster import Roster

    config = site_config.load(config_file)
    folder = config.identity
    cards = [card for path in files for card in _cards_in(kind, path)]
    roster = Roster(kind, folder)
    outcomes = roster.take(cards, site_in(folder).federation, own, replacing=replacing)
    note_cards(config)
    told = views.imports(outcomes, roster.held())
    say(told, as_json, views.imported(kind, told, config_file))


def note_cards(config: SiteConfig) -> None:
    """Note in the state what was put aside, where there is one; else the daemon does it, as it starts."""
    from eigenveil_client.site.state.opening import begun, opened

    if begun(config):
        with opened(config) as store:
            store.confirmed.note_cards(config.identity)


def _cards_in(kind: RosterKind[AnyCard], path: Path) -> tuple[SignedKeyCard[AnyCard], ...]:
    from eigenveil.errors import PeerError
    from eigenveil.key_cards.card_file import cards_from_file

    try:
        return cards_from_file(read(path), kind.read)
    except PeerError as problem:
        raise PeerError(problem.code, f"{path}: {problem}") from problem


def confirm_in(
    kind: RosterKind[AnyCard],
    config: SiteConfig,
    name: str,
    digits: str | None,
    by: str | None,
    *,
    as_json: bool,
) -> tuple[dict[str, Any], bool]:
    """Trust the card of `name`, whose digits a person heard: the pin as plain values, and whether that
    decided about a change. Raises as `Roster.confirm`."""
    from eigenveil_client.site.roster import views
    from eigenveil_client.site.roster.roster import Roster
    from eigenveil_client.site.state.opening import begun, opened

    roster, voice = Roster(kind, config.identity), kind.voice(name)
    before = roster.held().of(name)
    if digits is None and not asks(as_json):
        raise click.UsageError(
            "nobody is there to ask (no terminal, or --json); add --fingerprint 'DIGITS', as heard from "
            f"{voice}"
        )
    decider = who_decides(by, ask=not as_json)
    if digits is None:
        digits = click.prompt(f"The 40 digits that {voice} read to you", value_proc=_digits)
    pin = roster.confirm(name, digits, decider)
    if begun(config):  # else the daemon does it, as it starts
        with opened(config) as store:
            store.confirmed.note(kind)
    return views.pin_row(kind, pin), before.seen is not None


def _digits(text: str) -> str:
    """What was typed, if it is as many digits as there must be: else it is asked for again."""
    from eigenveil.errors import RequestError
    from eigenveil.key_cards.fingerprint import typed_fingerprint

    try:
        return typed_fingerprint(text)
    except RequestError as problem:
        raise click.UsageError(str(problem)) from problem


def show_pins(owner: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print a table of pins."""
    from eigenveil_client.site.commands.tables import moment, plain, show, table

    listed = table(owner, "standing", "digits", "confirmed (UTC)", "by")
    for row in rows:
        when = "" if row["confirmed"] is None else moment(row["confirmed"])
        listed.add_row(
            row[owner], row["standing"], row["fingerprint"] or "to be heard", when, *plain(row["by"] or "")
        )
    show(listed)
