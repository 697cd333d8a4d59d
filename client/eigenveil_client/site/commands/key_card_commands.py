"""Commands for key cards of both kinds of owners, other sites (`peers`) and analysts (`analysts`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.site.commands.terminal import (
    BY,
    CONFIG,
    CONFIG_FILE,
    JSON,
    decider_name,
    moment,
    show_table,
)
from eigenveil_common.command import FILE, console, is_interactive, print_result, print_result_as
from eigenveil_common.files import check_output, read, write_durably

if TYPE_CHECKING:
    from eigenveil.key_cards import SignedKeyCard
    from eigenveil_client.site.config import SiteConfig
    from eigenveil_client.site.roster.pins import RosterKind

IMPORT_HELP = """Import the key cards in FILES, all or none of them; none is trusted before it is confirmed.

Another card in the name of a confirmed one is refused. With --replace it replaces the confirmed card, and
must be confirmed.
"""


@click.group()
def peers() -> None:
    """The other sites whose masked numbers are added to this site's.

    Each site makes a key card and sends it to the others as a file; its people compare digits by telephone.
    Nothing of this goes through the coordinator. It works beside a running daemon."""


@peers.command("export")
@CONFIG
@click.option("--out", type=FILE, help="File to write the key card to [default: NAME.peer].")
@JSON
def export_peer_card(config: SiteConfig, out: Path | None, as_json: bool) -> None:
    """Write this site's key card for the other sites, and show the digits to read to them.

    The first call makes the keys, which never leave this machine; later calls write the same card."""
    from eigenveil.key_cards import cards_to_file
    from eigenveil_client.site.roster.peers import SiteKeys, card_row, export_text, site_identity

    out = out or Path(f"{site_identity(config.identity).name}.peer")
    check_output(out)
    this_site = SiteKeys.make(config.identity)
    write_durably(out, cards_to_file([this_site.signed]))
    print_result({"out": str(out), **card_row(this_site.card)}, as_json, export_text(this_site.card, out))


@click.group()
def analysts() -> None:
    """The analysts whose signature a study must have.

    Each analyst makes a key and sends its key card as a file; you compare digits by telephone. Once a first
    card is confirmed here, unsigned studies are refused. It works beside a running daemon."""


def _add_commands(group: click.Group, *, confirm_help: str, list_help: str, remove_help: str) -> None:
    """Add the commands that import, confirm, list and remove cards to the group of one kind of owner."""

    @group.command("import", help=IMPORT_HELP)
    @CONFIG_FILE
    @click.argument("files", nargs=-1, required=True, type=FILE)
    @click.option(
        "--replace", "replacing", is_flag=True, help="Also replace confirmed cards; telephone first."
    )
    @JSON
    def import_cards(config_file: Path, files: tuple[Path, ...], replacing: bool, as_json: bool) -> None:
        _import_cards(_kind(group), config_file, files, replacing=replacing, as_json=as_json)

    @group.command("confirm", help=confirm_help)
    @CONFIG
    @click.argument("name")
    @click.option("--fingerprint", "digits", help="The 40 digits, as heard [default: prompt].")
    @BY
    @JSON
    def confirm_card(
        config: SiteConfig, name: str, digits: str | None, by: str | None, as_json: bool
    ) -> None:
        _confirm_card(_kind(group), config, name, digits, by, as_json=as_json)

    @group.command("list", help=list_help)
    @CONFIG
    @JSON
    def list_cards(config: SiteConfig, as_json: bool) -> None:
        from eigenveil_client.site.roster.roster import pin_rows

        kind = _kind(group)
        print_result_as(pin_rows(kind, config.identity), as_json, lambda view: _show_cards(kind, view))

    @group.command("remove", help=remove_help)
    @CONFIG
    @click.argument("name")
    @JSON
    def remove_card(config: SiteConfig, name: str, as_json: bool) -> None:
        from eigenveil_client.site.roster.roster import Roster

        kind = _kind(group)
        Roster(kind, config.identity).remove(name)
        _note_cards(config)
        print_result({kind.owner: name, "removed": True}, as_json, f"{name} is removed")


def _import_cards(
    kind: RosterKind[Any], config_file: Path, files: tuple[Path, ...], *, replacing: bool, as_json: bool
) -> None:
    from eigenveil.errors import PeerError
    from eigenveil.key_cards import cards_from_file
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.roster import roster
    from eigenveil_client.site.roster.peers import PEERS, SiteKeys, site_identity

    config = site_config.load(config_file)
    this_site = SiteKeys.make(config.identity).card if kind is PEERS else None
    cards: list[SignedKeyCard[Any]] = []
    for path in files:
        try:
            cards += cards_from_file(read(path), kind.read)
        except PeerError as problem:
            raise PeerError(problem.code, f"{path}: {problem}") from problem
    federation, key_roster = site_identity(config.identity).federation, roster.Roster(kind, config.identity)
    outcomes = key_roster.import_cards(cards, federation, this_site, replacing=replacing)
    _note_cards(config)
    view, text = roster.import_result(outcomes, key_roster.content(), config_file)
    print_result(view, as_json, text)


def _confirm_card(
    kind: RosterKind[Any], config: SiteConfig, name: str, digits: str | None, by: str | None, *, as_json: bool
) -> None:
    from eigenveil_client.site.roster.roster import Roster, pin_row
    from eigenveil_client.site.state.store_access import has_state, open_site_store

    key_roster, reader = Roster(kind, config.identity), kind.reader.format(name)
    before = key_roster.content().of(name)
    if digits is None and not is_interactive(as_json):
        no_prompt = "there is no prompt (no terminal, or --json); add --fingerprint 'DIGITS', as heard from"
        raise click.UsageError(f"{no_prompt} {reader}")
    decider = decider_name(by, ask=not as_json)
    if digits is None:
        digits = click.prompt(f"The 40 digits that {reader} read to you", value_proc=_parse_fingerprint)
    pin = key_roster.confirm(name, digits, decider)
    if has_state(config):  # else the daemon does it when it starts
        with open_site_store(config) as store:
            store.confirmed.note(kind)
    note = kind.confirmed if before.conflict is None else kind.resolved
    print_result(pin_row(kind, pin), as_json, f"The digits agree: {name} is confirmed.{note}")


def _kind(group: click.Group) -> RosterKind[Any]:
    """Return the kind of owner of a group, which is named after its entries."""
    from eigenveil_client.site.state.confirmed_kinds import KINDS

    return next(kind for kind in KINDS if kind.entries == group.name)


def _note_cards(config: SiteConfig) -> None:
    """Record the removed cards in the state; without a state the daemon does it when it starts."""
    from eigenveil_client.site.state.store_access import has_state, open_site_store

    if has_state(config):
        with open_site_store(config) as store:
            store.confirmed.note_cards(config.identity)


def _parse_fingerprint(text: str) -> str:
    """Return the typed digits; prompt again if their number is wrong."""
    from eigenveil.errors import RequestError
    from eigenveil.key_cards import typed_fingerprint

    try:
        return typed_fingerprint(text)
    except RequestError as problem:
        raise click.UsageError(str(problem)) from problem


def _show_cards(kind: RosterKind[Any], view: dict[str, Any]) -> None:
    rows = view[kind.entries]
    console.print(kind.heading(view), markup=False, soft_wrap=True)
    if not rows:
        console.print(kind.empty, markup=False)
        return
    cells = [
        (
            *(row[kind.owner], row["status"], row["fingerprint"] or "not confirmed"),
            *("" if row["confirmed"] is None else moment(row["confirmed"]), row["by"] or ""),
        )
        for row in rows
    ]
    show_table((kind.owner, "status", "digits", "confirmed (UTC)", "by"), cells)
    if any(row["status"] == "changed" for row in rows):
        console.print(kind.changed)


_add_commands(
    peers,
    confirm_help="""Confirm the key card of site NAME, after its people have read its digits to you.

    Telephone them, at a number that did not come with the file; they see the digits with peers list. Nothing
    changes if the digits differ. It also resolves a changed card.
    """,
    list_help="""Show this site's digits, and each site whose key card is here.

    Digits of others are shown once they are confirmed; before, only their owner reads them out.
    """,
    remove_help="""Remove the key card of site NAME: masked studies with it are no longer answered.

    The card is stored as evidence (peers list --json). To trust it again, import and confirm it again.
    """,
)
_add_commands(
    analysts,
    confirm_help="""Confirm the key card of analyst NAME, who has read its digits to you.

    Telephone NAME, at a number that did not come with the file. Nothing changes if the digits differ. From
    then on only studies signed by a confirmed key are answered.
    """,
    list_help="""Show each analyst whose key card is here.

    Digits are shown once they are confirmed; before, only their owner reads them out.
    """,
    remove_help="""Remove the key card of analyst NAME: studies that it signs are no longer answered.

    The card is stored as evidence (analysts list --json), and unsigned studies stay refused. To trust it
    again, import and confirm it again.
    """,
)

COMMANDS = (peers, analysts)
