"""A federation's sites and columns as plain values, and study files of chosen columns or variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.dictionary.directory import check_study
from eigenveil.dictionary.formats import stated_fields
from eigenveil.dictionary.readiness import SiteReadiness, left_out_warnings
from eigenveil.dictionary.study_files import ColumnIndex, complete, draft_from_fields, new_study_file
from eigenveil.errors import Code, RequestError
from eigenveil.planning.choose import make_plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation, Missing, Study
from eigenveil.study.toml import draft_from_toml, study_to_toml
from eigenveil_client.analyst.coordinator import call_coordinator
from eigenveil_client.analyst.federation import (
    FEDERATION,
    FederationView,
    approval_deadline,
    dictionary_of,
    find_dictionary,
    offered_columns,
    offering_sites,
    stated_person_column,
)
from eigenveil_client.records.isolated.reader import variants
from eigenveil_common.files import write_durably


def sites_value(view: FederationView) -> dict[str, Any]:
    """Return the sites as plain values."""
    rows = [
        {
            "site": site.name,
            "stated": site.statement and site.statement.to_dict(),
            "seen": site.seen and site.seen.isoformat(timespec="minutes"),
        }
        for site in view.sites
    ]
    return {"federation": view.name, "sites": rows}


def readiness_value(found: Sequence[SiteReadiness]) -> dict[str, Any]:
    """Return the readiness of a study's sites as plain values."""
    return {"readiness": [one.to_dict() for one in found]}


def columns_value(dictionary: Dictionary, view: FederationView | None) -> dict[str, Any]:
    """Return the columns of a dictionary as plain values, with the sites that offer them if `view` is
    given."""
    offers = {} if view is None else offered_columns(view)
    known = dictionary.usable()
    beside = sorted({name for names in offers.values() for name in names if name not in known})
    return {
        "dictionary": dictionary.name,
        "version": dictionary.version,
        "about": dictionary.about,
        "columns": [_column(one, offers) for one in dictionary.columns],
        "offered_outside_dictionary": beside,
        "sites_with_statement": sorted(offers),
    }


def _column(column: DictionaryColumn, offers: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    usable = [one.name for one in column.columns]
    offered = {name: [site for site, names in offers.items() if name in names] for name in usable}
    return stated_fields(column) | {"offered": offered}


def write_new_study(out: Path, profile: Path | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write a study file, and return its content as plain values. The coordinator is not called if both sites
    and a dictionary are named."""
    columns, sites = tuple(options["columns"]), tuple(options["sites"])
    named = options["named"] or FEDERATION
    view = None
    if named == FEDERATION or not sites:
        view = call_coordinator(profile, lambda analyst: analyst.federation())
    published = dictionary_of(view) if view is not None and named == FEDERATION else None
    dictionary = published or find_dictionary(named, out.parent, profile)
    ColumnIndex(dictionary).check(columns)  # so that a typo is not reported as a column that no site offers
    sites = sites or offering_sites(view, columns)
    fields = {key: options[key] for key in ("components", "epsilon", "delta", "purpose", "person_column")}
    fields["person_column"] = fields["person_column"] or stated_person_column(view, sites)
    fields |= {"name": options["name"] or out.stem, "columns": columns, "sites": sites, "dictionary": named}
    draft = draft_from_fields(fields | {"deadline_seconds": approval_deadline(view, sites)})
    text = new_study_file(draft, dictionary)
    study = complete(draft_from_toml(text), dictionary).study()
    if view is not None:
        check_study(study, view.directory)
    write_durably(out, text.encode())
    return {
        "study": str(out), "dictionary": named, "columns": list(columns), "sites": list(sites),
        "warnings": [] if view is None else _left_out(study, view),
    }  # fmt: skip


def _left_out(study: Study, view: FederationView) -> list[str]:
    """Return `left_out_warnings`; none of a study that has no plan yet, as `study explain` says why."""
    try:
        return left_out_warnings(make_plan(study), view.directory)
    except RequestError:
        return []


FEWEST = 2**10  # least max_records of a useful study
ABOUT = """\
# A column counts one allele of one variant, 0, 1 or 2; a missing genotype counts as 1 (fill). See its
# queries and cost with `eigenveil study explain`. Prune for linkage first, and use only the columns you need.
"""


def write_genotype_study(
    out: Path, profile: Path | None, file: Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a study of the variants of `file`, and return its content as plain values. The coordinator is not
    called if sites are named."""
    found = variants(file)
    sites = tuple(options["sites"])
    view = None if sites else call_coordinator(profile, lambda analyst: analyst.federation())
    sites = sites or offering_sites(view, found.columns)
    federation, seconds = Federation(sites=sites), approval_deadline(view, sites)
    columns = tuple(Column(name=name, unit="alleles", lower=0, upper=2, fill=1) for name in found.columns)
    study = _with_exact_sums(
        Study(
            name=options["name"] or out.stem,
            purpose=options["purpose"],
            columns=columns,
            epsilon=options["epsilon"],
            delta=options["delta"],
            components=options["components"],
            algorithm=Algorithm.DP_PCA,
            missing=Missing.FILL,
            grid_steps=1,
            person_column=options["person_column"],
            federation=federation if seconds is None else replace(federation, deadline_seconds=seconds),
        )
    )
    write_durably(out, (ABOUT + study_to_toml(study)).encode())
    value = {"study": str(out), "columns": list(found.columns), "left_out": found.left_out}
    return value | {"sites": list(sites), "max_records": study.max_records}


def _with_exact_sums(study: Study) -> Study:
    """Return the study with the largest max_records, up to its own, for which all sums are exact."""
    try:
        make_plan(study)
    except RequestError as problem:
        if problem.code is not Code.OVERFLOW or study.max_records <= FEWEST:
            raise
        return _with_exact_sums(replace(study, max_records=study.max_records // 2))
    return study
