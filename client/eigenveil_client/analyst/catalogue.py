"""The sites and the columns of a federation for a person, and a study file from a choice of them.

Whatever others wrote is shown as text: nothing in it is taken for a terminal's or a table's own marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from eigenveil.dictionary.admission import check_study
from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn, range_text
from eigenveil.dictionary.new_study import Choice, new_study
from eigenveil.dictionary.resolve import check_names, read_study_file
from eigenveil.dictionary.toml import column_to_dict
from eigenveil.study.toml import parse_study
from eigenveil_client.analyst.dictionaries import FEDERATION, find_dictionary
from eigenveil_client.analyst.federation import FederationView, ListedSite
from eigenveil_client.analyst.python.choosing import dictionary_of, offering, patience
from eigenveil_client.analyst.talk import at
from eigenveil_common.command import console
from eigenveil_common.files import write_durably

UNSTATED = "not stated"


def sites_value(view: FederationView) -> dict[str, Any]:
    """The sites as plain values."""
    return {"federation": view.name, "sites": [_site(one) for one in view.sites]}


def _site(site: ListedSite) -> dict[str, Any]:
    stated = None if site.statement is None else site.statement.to_dict()
    seen = None if site.seen is None else site.seen.isoformat(timespec="minutes")
    return {"site": site.name, "stated": stated, "seen": seen}


def show_sites(told: dict[str, Any]) -> None:
    table = Table("site", "offers", "approval", "declines beyond", "heard (UTC, to the hour)")
    for row in told["sites"]:
        stated = row["stated"]
        offers = (
            UNSTATED if stated is None or stated["offers"] is None else f"{len(stated['offers'])} columns"
        )
        approval, rules = (UNSTATED,) * 2 if stated is None else (stated["approval"], _rules(stated["rules"]))
        seen = (row["seen"] or "not since the start").removesuffix("+00:00").replace("T", " ")
        table.add_row(*map(Text, (row["site"], offers, approval, rules, seen)))
    console.print(table)


def _rules(rules: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * share:g} % {name.removeprefix('max_')}" for name, share in rules.items())


def columns_value(dictionary: Dictionary, view: FederationView | None) -> dict[str, Any]:
    """The columns of a dictionary as plain values; of the federation's own, also which sites offer them."""
    offers = {} if view is None else {one.name: one.offers for one in view.sites if one.offers is not None}
    known = dictionary.usable()
    beside = sorted({name for names in offers.values() for name in names if name not in known})
    return {
        "dictionary": dictionary.name,
        "version": dictionary.version,
        "about": dictionary.about,
        "columns": [_column(one, offers) for one in dictionary.columns],
        "offered_beside": beside,
        "sites_that_state": sorted(offers),
    }


def _column(column: DictionaryColumn, offers: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    usable = [one.name for one in column.columns]
    offered = {name: [site for site, names in offers.items() if name in names] for name in usable}
    return column_to_dict(column) | {"offered": offered}


def show_columns(told: dict[str, Any]) -> None:
    states = bool(told["sites_that_state"])
    title = Text(f"{told['dictionary']}, version {told['version']}: {told['about']}")
    table = Table(
        "column", "unit", "bounds", "LOINC", "meaning", *(["offered by"] if states else []), title=title
    )
    table.columns[0].no_wrap, table.columns[0].overflow = True, "ignore"  # names are what is typed
    for row in told["columns"]:
        for name, sites in row["offered"].items():
            bounds = range_text(row["lower"], row["upper"])
            cells = [name, row.get("unit", ""), bounds, row.get("loinc", ""), row["meaning"]]
            table.add_row(*map(Text, cells), *([Text(", ".join(sites))] if states else []))
    console.print(table)
    if told["offered_beside"]:
        names = ", ".join(told["offered_beside"])
        console.print(f"Offered by sites, in no dictionary: {names}", markup=False)


def write_new_study(out: Path, profile: Path | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Write a study file; what it says as plain values. Who names both sites and a dictionary asks nobody.

    Raises:
        RequestError: the study cannot be, or the federation does not have what it names.
    """
    columns, sites = _names(asked["columns"]), _names(asked["sites"] or "")
    named = asked["named"] or FEDERATION
    view = None
    if named == FEDERATION or not sites:
        view = at(profile, lambda analyst: analyst.federation())
    own = dictionary_of(view) if view is not None and named == FEDERATION else None
    dictionary = own or find_dictionary(named, out.parent, profile)
    check_names(columns, dictionary)  # a typo is told before it is a column that no site offers
    chosen = sites or offering(view, columns)
    choice = Choice(
        name=asked["name"] or out.stem,
        columns=columns,
        sites=chosen,
        components=asked["components"],
        epsilon=asked["epsilon"],
        delta=asked["delta"],
        dictionary=named,
        purpose=asked["purpose"],
        person_column=asked["person_column"],
        deadline_seconds=patience(view, chosen),
    )
    text = new_study(choice, dictionary)
    if view is not None:
        check_study(parse_study(read_study_file(text).resolved(dictionary).text), view.directory)
    write_durably(out, text.encode())
    return {"study": str(out), "dictionary": named, "columns": list(columns), "sites": list(choice.sites)}


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",") if name.strip())
