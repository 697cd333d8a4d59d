"""Questions about a site's columns, asked of a person at a terminal. Values are shown there alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from eigenveil.errors import RequestError
from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.site.mapping.first_look import FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping, confirmed
from eigenveil_client.site.mapping.promises import EPSILON, SizePromises
from eigenveil_client.site.mapping.targets import Target, targets
from eigenveil_common import config
from eigenveil_common.command import console

NOTHING = ""


def ask_table(names: Sequence[str]) -> str:
    """Return the table of several that a person chooses."""
    chosen: str = click.prompt("Which table holds the records", type=click.Choice(list(names)))
    return chosen


def answered(look: FirstLook) -> Iterator[ProposedMapping]:
    """Ask every open question, and yield the mappings that a person confirms, at most one a column of the
    dictionary."""
    seen = {one.header: one for one in look.table.columns}
    known = {one.column.name: one for one in targets(look.dictionary)}
    taken = {one.column for one in look.certain}
    for one in look.open:
        if one.column in taken:
            continue
        found = _ask(one, seen[one.header], known[one.column])
        if found is not None:
            taken.add(found.column)
            yield found


def _ask(one: ProposedMapping, column: SeenColumn, target: Target) -> ProposedMapping | None:
    _print(f"{one.question} (Here, and nowhere else: {one.seen}.)")
    if one.units:
        units = [unit or "none" for unit in one.units]
        shown = f"Unit, one of {', '.join(units)} (empty: leave the column out)"
        stated = click.prompt(shown, default=NOTHING, show_default=False).strip()
        unit = "" if stated == "none" else stated
        return _confirmed(column, target, unit) if stated else None
    if not click.confirm(f"Use it as {one.column}{f' in {one.unit}' if one.unit else ''}?", default=False):
        return None
    return _confirmed(column, target, one.unit)


def _confirmed(column: SeenColumn, target: Target, unit: str) -> ProposedMapping | None:
    try:
        return confirmed(column, target, unit)
    except RequestError as problem:
        _print(f"{problem}. It is left out; eigenveil-site map sets it later.")
        return None


def may_count() -> bool:
    """Ask if the number of persons may be noised and charged, from which promises are proposed."""
    _print(
        "Studies are declined unless minimum_records and maximum_records of site.toml suit them. They can be "
        "proposed from the number of persons, which is noised once. "
        f"That spends epsilon {EPSILON:g} of the budget."
    )
    return click.confirm("Propose them?", default=True)


def confirm_promises(promises: SizePromises) -> bool:
    """Ask a person to confirm the promises."""
    stated = ", ".join(f"{key} = {value}" for key, value in config.values(promises).items())
    _print(f"Promised: never fewer persons than minimum_records, nor more than maximum_records: {stated}")
    return click.confirm("State this?", default=True)


def may_state(columns: Sequence[str]) -> bool:
    """Ask if the federation may be told that the site has these columns."""
    _print(f"Analysts can be told which columns this site has, by their names here: {', '.join(columns)}")
    return click.confirm(f"State these {len(columns)} columns to the federation?", default=False)


def _print(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
