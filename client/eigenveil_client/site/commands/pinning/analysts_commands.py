"""Commands with which a site's people make sure who an analyst is: analysts import, confirm, list, remove."""

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

if TYPE_CHECKING:
    from eigenveil_client.site.config import SiteConfig


@click.group()
def analysts() -> None:
    """The analysts whose signature a study must have.

    Each analyst makes a key, sends its card as a file, and you compare digits by telephone. From the first
    card that is confirmed here, studies that nobody signed are refused. It works beside a running daemon.
    """


@analysts.command("import")
@CONFIG_FILE
@click.argument("files", nargs=-1, required=True, type=FILE)
@REPLACE
@JSON
def import_cards(config_file: Path, files: tuple[Path, ...], replacing: bool, as_json: bool) -> None:
    """Take in the cards in FILES, all or none of them; none is trusted before it is confirmed.

    A card that was confirmed stays, and another one in its name is refused; with --replace it gives way, and
    the new one must be confirmed.
    """
    from eigenveil_client.site.analysts.kind import ANALYSTS

    take_cards(ANALYSTS, config_file, files, replacing=replacing, as_json=as_json)


@analysts.command("confirm")
@CONFIG
@click.argument("name")
@DIGITS
@BY
@JSON
def confirm_card(config: SiteConfig, name: str, digits: str | None, by: str | None, as_json: bool) -> None:
    """Trust the card of analyst NAME, who has read its digits to you.

    Telephone NAME, at a number that did not come with the file. Nothing changes if the digits differ. From
    then on no study is answered that no confirmed key has signed.
    """
    from eigenveil_client.site.analysts.kind import ANALYSTS

    pinned, _ = confirm_in(ANALYSTS, config, name, digits, by, as_json=as_json)
    text = f"The digits agree: {name} is confirmed. Studies that nobody signed are refused from now on."
    say(pinned, as_json, text)


@analysts.command("list")
@CONFIG
@JSON
def list_analysts(config: SiteConfig, as_json: bool) -> None:
    """Show each analyst whose card is here.

    Digits are shown once they are confirmed: before, they are to be heard from their owner.
    """
    from eigenveil_client.site.analysts.views import listed

    tell(listed(config.identity), as_json, _show_list)


def _show_list(told: dict[str, Any]) -> None:
    from eigenveil_client.site.analysts.views import UNSIGNED

    console.print(f"studies that nobody signed: {UNSIGNED[told['unsigned']]}", markup=False, soft_wrap=True)
    if not told["analysts"]:
        console.print("no analyst's card is here: eigenveil-site analysts import FILE", markup=False)
        return
    show_pins("analyst", told["analysts"])
    if any(row["standing"] == "changed" for row in told["analysts"]):
        console.print("changed: nothing of theirs is answered before a person has decided; see check")


@analysts.command("remove")
@CONFIG
@click.argument("name")
@JSON
def remove_card(config: SiteConfig, name: str, as_json: bool) -> None:
    """Put the card of analyst NAME aside: no study that it signs is answered any more.

    The card is kept as evidence (analysts list --json), and unsigned studies stay refused. To trust it again,
    import and confirm it again.
    """
    from eigenveil_client.site.analysts.kind import ANALYSTS
    from eigenveil_client.site.roster.roster import Roster

    Roster(ANALYSTS, config.identity).remove(name)
    note_cards(config)
    say({"analyst": name, "removed": True}, as_json, f"{name} is removed")


COMMANDS = (analysts,)
