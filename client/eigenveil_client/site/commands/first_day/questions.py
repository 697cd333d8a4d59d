"""Questions about a site's columns, asked of a person at a terminal. Values are shown there alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from eigenveil.dictionary.dictionary import listed
from eigenveil.errors import RequestError
from eigenveil.reporting.presentation import one_line, printable_text
from eigenveil_client.records.discovery.columns import SeenColumn
from eigenveil_client.site.config import SiteConfig
from eigenveil_client.site.mapping.first_look import NOBODY, FirstLook
from eigenveil_client.site.mapping.matching import ProposedMapping, confirmed
from eigenveil_client.site.mapping.promises import EPSILON, SizePromises
from eigenveil_client.site.mapping.targets import Target, targets
from eigenveil_common import config
from eigenveil_common.command import console


def ask_table(names: Sequence[str]) -> str:
    """Return the table of several that a person chooses."""
    shown = {one_line(one): one for one in names}
    return shown[click.prompt("Which table holds the records", type=click.Choice(list(shown)))]


def ask_person(columns: Sequence[SeenColumn], candidates: Sequence[str]) -> str:
    """Return the header of the column that names the person, as a person says, or `NOBODY`."""
    headers = {one_line(one.header.strip()): one.header for one in columns} | {NOBODY: NOBODY}

    def header(text: str) -> str:
        if text.strip() not in headers:
            raise click.UsageError(f"the records have no column {text.strip()!r}")
        return headers[text.strip()]

    likely = f", perhaps {one_line(listed(candidates))}" if candidates else ""
    _print(
        "Privacy protects a person: every row must say whose it is, not only of which stay, case or sample."
    )
    stated: str = click.prompt(
        f"Column that names the person{likely} ({NOBODY}: every row is another person)", value_proc=header
    )
    return stated


def answered(look: FirstLook, proposals: Sequence[ProposedMapping]) -> Iterator[ProposedMapping]:
    """Ask about proposals, and yield the mappings that a person confirms, at most one a column of the
    dictionary."""
    seen = {one.header: one for one in look.table.columns}
    known = {one.column.name: one for one in targets(look.dictionary)}
    taken = set[str]()
    for one in proposals:
        if one.column in taken:
            continue
        found = _ask(one, seen[one.header], known[one.column])
        if found is not None:
            taken.add(found.column)
            yield found


def words_without_value(config: SiteConfig, look: FirstLook) -> Iterator[tuple[str, ...]]:
    """Ask of each column of numbers if the one or two words among them mean "no value", and yield those."""
    measured = {rule.header: rule.missing for rule in config.column if not rule.levels and not rule.values}
    known = {word.lower() for word in config.records.missing}
    for one in look.table.columns:
        stated = known | {word.lower() for word in measured.get(one.header.strip(), ())}
        words = tuple(word for word in one.unclear if word.lower() not in stated)
        if one.header.strip() not in measured or not words:
            continue
        shown = listed([f"{word!r} in {dict(one.missing_cells)[word]} cells" for word in words])
        _print(
            f"{one_line(one.header)}: no number, of the rows looked at: {shown}. (Here, and nowhere else.)"
        )
        if click.confirm("Does that mean no value, in all columns?", default=False):
            known |= set(map(str.lower, words))
            yield words


def _ask(one: ProposedMapping, column: SeenColumn, target: Target) -> ProposedMapping | None:
    _print(f"{one.open_text} (Here, and nowhere else: {one.seen}.)")
    if one.units:
        units = [unit or "none" for unit in one.units]
        return _stated(column, target, f"Unit, one of {', '.join(units)}")
    if one.coded:
        levels = target.column.levels
        return _stated(column, target, f"Level of each word, such as 1={levels[0]},2={levels[-1]}")
    if not click.confirm(f"Use it as {one.column}{f' in {one.unit}' if one.unit else ''}?", default=False):
        return None
    return _confirmed(column, target, one.unit)


def _stated(column: SeenColumn, target: Target, wanted: str) -> ProposedMapping | None:
    """Ask until an answer fits, or is empty."""
    while stated := click.prompt(f"{wanted} (empty: leave it out)", default="", show_default=False).strip():
        try:
            return confirmed(column, target, "" if stated == "none" else stated)
        except RequestError as problem:
            _print(str(problem))
    return None


def _confirmed(column: SeenColumn, target: Target, unit: str) -> ProposedMapping | None:
    try:
        return confirmed(column, target, unit)
    except RequestError as problem:
        _print(f"{problem}. It is left out; eigenveil-site map sets it later.")
        return None


def rows_are_persons() -> bool:
    """Ask if every row is another person, where site.toml names no person column."""
    return click.confirm("site.toml has no person_column. Is every row another person?", default=False)


def may_count(*, counted: bool) -> bool:
    """Ask if promises may be proposed from the number of persons, which is noised and charged unless it was
    `counted` before."""
    once = f"noised once for epsilon {EPSILON:g} of the budget"
    _print(
        "Studies are declined unless minimum_records and maximum_records of site.toml suit them. They can be "
        f"proposed from the number of persons, {'noised before, at no further cost' if counted else once}."
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
    console.print(printable_text(text), markup=False, soft_wrap=True)
