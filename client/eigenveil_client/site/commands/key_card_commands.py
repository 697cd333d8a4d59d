"""Commands for key cards of both kinds of owners, other sites (`peers`) and analysts (`analysts`).

Both groups import, confirm, list and remove cards; `peers` also exports this site's own card.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.site.commands.terminal import BY, CONFIG, CONFIG_FILE, JSON, decider_name
from eigenveil_common.command import FILE, console, is_interactive, print_result, print_result_as
from eigenveil_common.files import check_output, read, write_durably

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
    from eigenveil_client.site.roster.peers import site_identity
    from eigenveil_client.site.roster.roster import Roster

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

    listing = table(owner, "status", "digits", "confirmed (UTC)", "by")
    for row in rows:
        when = "" if row["confirmed"] is None else moment(row["confirmed"])
        listing.add_row(
            row[owner], row["status"], row["fingerprint"] or "not confirmed", when, *plain(row["by"] or "")
        )
    show(listing)


@click.group()
def peers() -> None:
    """The other sites whose masked numbers are added to this site's.

    Each site makes a key card and sends it to the others as a file; its people compare digits by telephone.
    Nothing of this goes through the coordinator. It works beside a running daemon.
    """


@peers.command("export")
@CONFIG
@click.option("--out", type=FILE, help="File to write the key card to [default: NAME.peer].")
@JSON
def export_peer_card(config: SiteConfig, out: Path | None, as_json: bool) -> None:
    """Write this site's key card for the other sites, and show the digits to read to them.

    The first call makes the keys, which never leave this machine; later calls write the same card.
    """
    from eigenveil.key_cards.key_card import cards_to_file
    from eigenveil_client.site.roster import peers
    from eigenveil_client.site.roster.peers import SiteKeys, site_identity

    out = out or Path(f"{site_identity(config.identity).name}.peer")
    check_output(out)
    this_site = SiteKeys.make(config.identity)
    write_durably(out, cards_to_file([this_site.signed]))
    print_result(
        {"out": str(out), **peers.site_card_row(this_site.card)},
        as_json,
        peers.export_text(this_site.card, out),
    )


@peers.command("import")
@CONFIG_FILE
@click.argument("files", nargs=-1, required=True, type=FILE)
@REPLACE
@JSON
def import_peer_cards(config_file: Path, files: tuple[Path, ...], replacing: bool, as_json: bool) -> None:
    """Import the key cards in FILES, all or none of them; none is trusted before it is confirmed.

    Another card in the name of a confirmed one is refused. With --replace it replaces the confirmed card, and
    must be confirmed.
    """
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.roster.peers import PEERS, SiteKeys

    this_site = SiteKeys.make(site_config.load(config_file).identity).card
    import_card_files(PEERS, config_file, files, replacing=replacing, as_json=as_json, this_site=this_site)


@peers.command("confirm")
@CONFIG
@click.argument("name")
@FINGERPRINT
@BY
@JSON
def confirm_peer_card(
    config: SiteConfig, name: str, digits: str | None, by: str | None, as_json: bool
) -> None:
    """Confirm the key card of site NAME, after its people have read its digits to you.

    Telephone them, at a number that did not come with the file; they see the digits with peers list. Nothing
    changes if the digits differ. It also resolves a changed card.
    """
    from eigenveil_client.site.roster.peers import PEERS

    pinned, changed = confirm_card_of(PEERS, config, name, digits, by, as_json=as_json)
    again = " Start the daemon again, if it ended." if changed else ""
    print_result(pinned, as_json, f"The digits agree: {name} is confirmed.{again}")


@peers.command("list")
@CONFIG
@JSON
def list_peers(config: SiteConfig, as_json: bool) -> None:
    """Show this site's digits, and each site whose key card is here.

    Digits of others are shown once they are confirmed; before, only their owner reads them out.
    """
    from eigenveil_client.site.roster import peers

    print_result_as(peers.pin_rows(config.identity), as_json, _show_peers)


def _show_peers(view: dict[str, Any]) -> None:
    this_site = view["site_card"]
    text = (
        f"{this_site['fingerprint']}  ({this_site['site']})"
        if this_site
        else "none yet; make it: eigenveil-site peers export"
    )
    console.print(f"this site's key card: {text}", markup=False, soft_wrap=True)
    if not view["peers"]:
        console.print("no other site's key card is here: eigenveil-site peers import FILE", markup=False)
        return
    show_pins("site", view["peers"])
    if any(row["status"] == "changed" for row in view["peers"]):
        console.print("changed: nothing is sent until a person decides; see eigenveil-site check")


@peers.command("remove")
@CONFIG
@click.argument("name")
@JSON
def remove_peer_card(config: SiteConfig, name: str, as_json: bool) -> None:
    """Remove the key card of site NAME: masked studies with it are no longer answered.

    The card is stored as evidence (peers list --json). To trust it again, import and confirm it again.
    """
    from eigenveil_client.site.roster.peers import PEERS
    from eigenveil_client.site.roster.roster import Roster

    Roster(PEERS, config.identity).remove(name)
    note_cards(config)
    print_result({"site": name, "removed": True}, as_json, f"{name} is removed")


@click.group()
def analysts() -> None:
    """The analysts whose signature a study must have.

    Each analyst makes a key and sends its key card as a file; you compare digits by telephone. Once a first
    card is confirmed here, unsigned studies are refused. It works beside a running daemon.
    """


@analysts.command("import")
@CONFIG_FILE
@click.argument("files", nargs=-1, required=True, type=FILE)
@REPLACE
@JSON
def import_analyst_cards(config_file: Path, files: tuple[Path, ...], replacing: bool, as_json: bool) -> None:
    """Import the key cards in FILES, all or none of them; none is trusted before it is confirmed.

    Another card in the name of a confirmed one is refused. With --replace it replaces the confirmed card, and
    must be confirmed.
    """
    from eigenveil_client.site.roster.analysts import ANALYSTS

    import_card_files(ANALYSTS, config_file, files, replacing=replacing, as_json=as_json)


@analysts.command("confirm")
@CONFIG
@click.argument("name")
@FINGERPRINT
@BY
@JSON
def confirm_analyst_card(
    config: SiteConfig, name: str, digits: str | None, by: str | None, as_json: bool
) -> None:
    """Confirm the key card of analyst NAME, who has read its digits to you.

    Telephone NAME, at a number that did not come with the file. Nothing changes if the digits differ. From
    then on only studies signed by a confirmed key are answered."""
    from eigenveil_client.site.roster.analysts import ANALYSTS

    pinned, _ = confirm_card_of(ANALYSTS, config, name, digits, by, as_json=as_json)
    text = f"The digits agree: {name} is confirmed. Unsigned studies are refused from now on."
    print_result(pinned, as_json, text)


@analysts.command("list")
@CONFIG
@JSON
def list_analysts(config: SiteConfig, as_json: bool) -> None:
    """Show each analyst whose key card is here.

    Digits are shown once they are confirmed; before, only their owner reads them out.
    """
    from eigenveil_client.site.roster.analysts import pin_rows

    print_result_as(pin_rows(config.identity), as_json, _show_analysts)


def _show_analysts(view: dict[str, Any]) -> None:
    from eigenveil_client.site.roster.analysts import UNSIGNED

    console.print(f"unsigned studies: {UNSIGNED[view['unsigned']]}", markup=False, soft_wrap=True)
    if not view["analysts"]:
        console.print("no analyst's key card is here: eigenveil-site analysts import FILE", markup=False)
        return
    show_pins("analyst", view["analysts"])
    if any(row["status"] == "changed" for row in view["analysts"]):
        console.print("changed: their studies are refused until a person decides; see: eigenveil-site check")


@analysts.command("remove")
@CONFIG
@click.argument("name")
@JSON
def remove_analyst_card(config: SiteConfig, name: str, as_json: bool) -> None:
    """Remove the key card of analyst NAME: studies that it signs are no longer answered.

    The card is stored as evidence (analysts list --json), and unsigned studies stay refused. To trust it
    again, import and confirm it again."""
    from eigenveil_client.site.roster.analysts import ANALYSTS
    from eigenveil_client.site.roster.roster import Roster

    Roster(ANALYSTS, config.identity).remove(name)
    note_cards(config)
    print_result({"analyst": name, "removed": True}, as_json, f"{name} is removed")
