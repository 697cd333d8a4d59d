"""Command that shows and changes the mapping of a site's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenveil.errors import RequestError
from eigenveil_client.site.commands.terminal import (
    CONFIG_FILE,
    JSON,
    print_warnings,
    show_table,
    warn_if_outdated,
)
from eigenveil_common.command import console, is_interactive, print_result_as
from eigenveil_common.trusted_files import check_trusted

if TYPE_CHECKING:
    from eigenveil_client.site.mapping.matching import ProposedMapping
    from eigenveil_client.site.mapping.table import MappedColumn

HEADINGS = ("their column", "column", "unit", "factor", "share readable", "share plausible", "")
LOCAL_NOTE = "The shares are confidential: they stay here, and no command and no daemon sends them."
OFFER = "eigenveil-site map --offer"
PROMPT = "Change it: THEIRS=column, THEIRS=column:unit, or -column to remove one (empty: done)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingView:
    """Mapping in force, proposals for other columns of the records, and the rest of their names."""

    dictionary: str
    version: int
    mapped: Sequence[MappedColumn]
    proposed: Sequence[ProposedMapping]
    unmapped: Sequence[str]
    offers: Sequence[str]

    def values(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "dictionary": self.dictionary, "version": self.version,
            "mapped": [asdict(one) for one in self.mapped],
            "proposed": [one.to_dict() for one in self.proposed], "unmapped": list(self.unmapped),
            "offers": list(self.offers),
        }  # fmt: skip


def mapping_view(config_file: Path) -> MappingView:
    """Return the mapping of a site, as its records and its dictionary are now. Raises as
    `mapping_in_force`."""
    from eigenveil_client.site import config as site_config
    from eigenveil_client.site.mapping.table import look_again, mapping_in_force, still_open, unmapped_headers

    config = site_config.load(config_file)
    mapped, look = mapping_in_force(config), look_again(config)
    proposed = still_open(config, look)
    rest = {*unmapped_headers(config)} - {one.header for one in proposed}
    return MappingView(
        dictionary=look.dictionary.name, version=look.dictionary.version, mapped=mapped, proposed=proposed,
        unmapped=sorted(rest), offers=config.offers,
    )  # fmt: skip


@click.command("map")
@CONFIG_FILE
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="THEIRS=COLUMN[:UNIT]",
    help="Map a column; of a category THEIRS=COLUMN:WORD=LEVEL,WORD=LEVEL.",
)
@click.option("--remove", "removed", multiple=True, metavar="COLUMN", help="Remove the mapping of a column.")
@click.option(
    "--missing", multiple=True, metavar="WORD", help="Take a word or number as no value, in all columns."
)
@click.option("--offer", is_flag=True, help="State the mapped columns to the federation: write offers.")
@JSON
def map_columns(
    config_file: Path,
    settings: tuple[str, ...],
    removed: tuple[str, ...],
    missing: tuple[str, ...],
    offer: bool,
    as_json: bool,
) -> None:
    """Show which column of the records is which column of the dictionary, and change it.

    Changes are written into site.toml: the tables [column.NAME], the key columns, and missing of [records].
    A running daemon follows with its next start. At a terminal, without options, you are asked for them."""
    from eigenveil_client.site import config as site_config

    _change(config_file, settings, removed, missing, offer=offer)
    view = mapping_view(config_file)
    print_result_as(view.values(), as_json, lambda _: _show(view, config_file))
    if not (settings or removed or missing or offer) and is_interactive(as_json):
        _ask_changes(config_file)
    warn_if_outdated(site_config.load(config_file))


def _ask_changes(config_file: Path) -> None:
    while (line := click.prompt(PROMPT, default="", show_default=False).strip()) != "":
        try:
            gone = (line[1:].strip(),) if line.startswith("-") else ()
            _change(config_file, () if gone else (line,), gone)
        except RequestError as problem:
            console.print(str(problem), markup=False, soft_wrap=True)
        else:
            _show(mapping_view(config_file), config_file)


def _change(
    config_file: Path,
    settings: Sequence[str],
    removed: Sequence[str],
    missing: Sequence[str] = (),
    *,
    offer: bool = False,
) -> None:
    from eigenveil_client.site.mapping import changes

    check_trusted([config_file])
    if settings or removed:
        wanted = [changes.parse_setting(one) for one in settings]
        print_warnings(changes.apply_changes(config_file, wanted, removed))
    if missing:
        print_warnings(changes.state_missing(config_file, missing))
    if offer:
        changes.state_mapping(config_file)


def _show(view: MappingView, config_file: Path) -> None:
    from eigenveil.reporting.presentation import one_line

    console.print(f"dictionary {view.dictionary} (version {view.version}), in {config_file}", markup=False)
    show_table(HEADINGS, [_row(one) for one in view.mapped])
    for one in view.proposed:
        console.print(one_line(f"open: {one.open_text}"), markup=False, soft_wrap=True)
    if view.unmapped:
        console.print(one_line(f"not mapped: {', '.join(view.unmapped)}"), markup=False, soft_wrap=True)
    stated = ", ".join(view.offers) or f"none; to state the mapped ones: {OFFER}"
    console.print(f"columns stated to the federation: {stated}", markup=False, soft_wrap=True)
    console.print(LOCAL_NOTE)


def _row(one: MappedColumn) -> tuple[str, ...]:
    factor = f"{one.factor:.6g}" + (f" {one.offset:+.6g}" if one.offset else "")
    shares = ("" if share is None else f"{100 * share:.4g} %" for share in (one.readable, one.plausible))
    note = one.problem or ("" if one.known else "not in the dictionary")
    return one.header, one.column, one.unit, factor, *shares, note
