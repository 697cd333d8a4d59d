"""Commands with which people of several sites make sure who is who: peers export, import, confirm, list,
remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil_client.site.commands.options import BY, CONFIG, CONFIG_FILE, JSON
from eigenveil_client.site.commands.pinning.pins import (
    DIGITS,
    REPLACE,
    confirm_in,
    note_cards,
    show_pins,
    take_cards,
)
from eigenveil_common.command import FILE, console, say, tell
from eigenveil_common.files import check_output, write_durably

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


@click.group()
def peers() -> None:
    """The other sites whose numbers are added to this one's before anybody can read the sum.

    Each site makes a card, sends it to the others as a file, and its people compare digits by telephone.
    Nothing of it goes through the coordinator. It works beside a running daemon.
    """


@peers.command("export")
@CONFIG
@click.option("--out", type=FILE, help="Where to write the card [default: NAME.peer].")
@JSON
def export_card(config: SiteConfig, out: Path | None, as_json: bool) -> None:
    """Write this site's card, for the other sites, and show the digits to be read to them.

    The first time it makes the keys behind it, which never leave this machine; then it is the same card each
    time.
    """
    from eigenveil.key_cards.card_file import cards_to_file
    from eigenveil_client.site.peers import views
    from eigenveil_client.site.peers.keys import OwnKeys, site_in

    out = out or Path(f"{site_in(config.identity).name}.peer")
    check_output(out)
    own = OwnKeys.make(config.identity)
    write_durably(out, cards_to_file([own.signed]))
    say({"out": str(out), **views.own_card(own.card)}, as_json, views.exported(own.card, out))


@peers.command("import")
@CONFIG_FILE
@click.argument("files", nargs=-1, required=True, type=FILE)
@REPLACE
@JSON
def import_cards(config_file: Path, files: tuple[Path, ...], replacing: bool, as_json: bool) -> None:
    """Take in the cards in FILES, all or none of them; none is trusted before it is confirmed.

    A card that was confirmed stays, and another one in its name is refused; with --replace it gives way, and
    the new one must be confirmed.
    """
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.peers.keys import OwnKeys
    from eigenveil_client.site.peers.kind import PEERS

    own = OwnKeys.make(site_config.load(config_file).identity).card
    take_cards(PEERS, config_file, files, replacing=replacing, as_json=as_json, own=own)


@peers.command("confirm")
@CONFIG
@click.argument("name")
@DIGITS
@BY
@JSON
def confirm_card(config: SiteConfig, name: str, digits: str | None, by: str | None, as_json: bool) -> None:
    """Trust the card of site NAME, after its people have read its digits to you.

    Telephone them, at a number that did not come with the file; they find the digits with peers list. Nothing
    changes if the digits differ. It also decides about a card that changed.
    """
    from eigenveil_client.site.peers.kind import PEERS

    pinned, changed = confirm_in(PEERS, config, name, digits, by, as_json=as_json)
    again = " Start the daemon again, if it ended." if changed else ""
    say(pinned, as_json, f"The digits agree: {name} is confirmed.{again}")


@peers.command("list")
@CONFIG
@JSON
def list_peers(config: SiteConfig, as_json: bool) -> None:
    """Show this site's own digits, and each site whose card is here.

    Digits of others are shown once they are confirmed: before, they are to be heard from their owner.
    """
    from eigenveil_client.site.peers import views

    tell(views.listed(config.identity), as_json, _show_list)


def _show_list(told: dict[str, Any]) -> None:
    own = told["own"]
    said = (
        f"{own['fingerprint']}  ({own['site']})" if own else "none yet: eigenveil-site peers export makes it"
    )
    console.print(f"own card: {said}", markup=False, soft_wrap=True)
    if not told["peers"]:
        console.print("no other site's card is here: eigenveil-site peers import FILE", markup=False)
        return
    show_pins("site", told["peers"])
    if any(row["standing"] == "changed" for row in told["peers"]):
        console.print("changed: nothing is sent before a person has decided; eigenveil-site check says how")


@peers.command("remove")
@CONFIG
@click.argument("name")
@JSON
def remove_card(config: SiteConfig, name: str, as_json: bool) -> None:
    """Put the card of site NAME aside: no study is answered any more whose numbers are added to its.

    The card is kept as evidence (peers list --json). To trust it again, import and confirm it again.
    """
    from eigenveil_client.site.peers.kind import PEERS
    from eigenveil_client.site.roster.roster import Roster

    Roster(PEERS, config.identity).remove(name)
    note_cards(config)
    say({"site": name, "removed": True}, as_json, f"{name} is removed")


COMMANDS = (peers,)
