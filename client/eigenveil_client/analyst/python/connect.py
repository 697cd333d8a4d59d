"""The function `eigenveil.connect`.

Python interface of a federation for its analyst, and its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar, overload

from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text

from eigenveil.dictionary.dictionary import Dictionary, DictionaryColumn
from eigenveil.dictionary.readiness import SiteReadiness
from eigenveil.reporting.presentation import dataframe, printable_text, table_html
from eigenveil.study.checks import study_error
from eigenveil.study.study import Study
from eigenveil.study.toml import draft_from_toml, study_to_toml
from eigenveil_client.analyst.coordinator import BlockingCoordinator
from eigenveil_client.analyst.federation import FederationView, ListedSite, dictionary_of, offered_columns
from eigenveil_client.analyst.profile import default_profile, stored_applicant
from eigenveil_client.analyst.python.plan import FederationBudget, Summary, budget_from
from eigenveil_client.analyst.python.run import Run, run_of, status_of
from eigenveil_client.analyst.python.study import FederatedStudy, draft_of, study_from
from eigenveil_common.command import require_extra
from eigenveil_common.files import read_text
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def connect(profile: str | os.PathLike[str] | None = None, **applicant: str) -> ConnectedFederation:
    """Return the federation that you are enrolled with as an analyst.

    `profile` is the folder of your identity (default: $EIGENVEIL_PROFILE or ~/.config/eigenveil).
    `applicant` are texts on who asks, in place of your profile's: `full_name`, `institution`, `contact`,
    `ethics_reference`, `legal_basis`. They are in each study that does not state its own. The coordinator is
    called when it is needed. Every call blocks, in a notebook as well, and raises the errors of the command
    `eigenveil`.

    Raises:
        RequestError: code `bad-config`, the profile is not enrolled, or a library of `eigenveil[analyst]` is
            not installed; `bad-study`, a text is too long or not printable.
        PeerError: code `identity`, the certificate has expired.

    >>> import eigenveil
    >>> eigenveil.connect("nobody")
    Traceback (most recent call last):
    eigenveil.errors.RequestError: nobody holds no identity; enrol with a join file from the coordinator"""
    with require_extra("analyst"):
        pass
    return ConnectedFederation(None if profile is None else Path(profile), **applicant)


T = TypeVar("T")
WIDTH = 120  # of printed tables, as the cell of a notebook states no width


class DisplayTable(Sequence[T]):
    """Table of frozen values of one type; `cells` maps a value to headings and cells. Text of other parties
    is shown as plain text, so it cannot contain markup of a terminal or a table."""

    def __init__(self, title: str, rows: Sequence[T], cells: Callable[[T], Mapping[str, Any]]) -> None:
        self.title, self._rows, self._cells = title, tuple(rows), cells

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...
    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        return self._rows[place]

    def to_dataframe(self) -> Any:
        """Return the table as a DataFrame. Raises RequestError: pandas is not installed."""
        found = [self._cells(one) for one in self]
        return dataframe({heading: [row[heading] for row in found] for heading in (found or [{}])[0]})

    def __rich__(self) -> Printed | Text:
        headings, lines = self._texts()
        printed = Printed(*headings, title=Text(self.title), title_justify="left")
        for column in printed.columns:
            column.overflow = "fold"  # a name is typed by its reader, so none is cut
        for line in lines:
            printed.add_row(*map(Text, line))
        return printed if lines else Text(f"{self.title}: none")

    def __repr__(self) -> str:
        console = Console(file=StringIO(), width=WIDTH, force_jupyter=False)  # else rich would display it
        console.print(self)
        output: str = console.file.getvalue()  # type: ignore[attr-defined]
        return printable_text(output.rstrip())

    def _repr_html_(self) -> str:
        return table_html(self.title, *self._texts())

    def _texts(self) -> tuple[list[str], list[list[str]]]:
        found = [self._cells(one) for one in self]
        headings = list(found[0]) if found else []
        return headings, [[_text(row[heading]) for heading in headings] for row in found]


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M} UTC"
        case float():
            return f"{value:g}"
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)


class ConnectedFederation(BlockingCoordinator, Summary):
    """Your federation, as returned by `eigenveil.connect()`.

    Properties call the coordinator each time they are read. Any thread may use it; `with`, `close()` or the
    end of Python closes it.

    `applicant`: who asks, in each study that does not state it itself. Every method and property raises:
        EigenveilError: the coordinator's own error, or code `unreachable`."""

    _inner = ("call", "each", "identity", "profile", "view")

    def __init__(self, profile: Path | None = None, **applicant: str) -> None:
        self.applicant = replace(stored_applicant(profile or default_profile()), **applicant)
        self.applicant.check_blanks()
        super().__init__(profile)

    @property
    def view(self) -> FederationView:
        """The sites and the dictionary of the federation now."""
        return self.call(lambda analyst: analyst.federation())

    @property
    def sites(self) -> DisplayTable[ListedSite]:
        """The sites, and each site's own statement."""
        return site_table(self.view)

    @property
    def columns(self) -> DisplayTable[DictionaryColumn]:
        """The columns of the federation's dictionary, and the sites that state that they offer them."""
        view = self.view
        return column_table(dictionary_of(view), view)

    @property
    def budget(self) -> FederationBudget:
        """The remaining budget of the federation."""
        return budget_from(self.call(lambda analyst: analyst.listed()))

    @property
    def studies(self) -> DisplayTable[Run]:
        """Every study of the federation, oldest first."""
        found = self.call(lambda analyst: analyst.studies())
        rows = {row.plan_digest.hex(): row for row in found}
        runs = [run_of(self, row) for row in found]
        return DisplayTable("Studies", runs, lambda one: _study(one, rows[one.digest]))

    def study(self, source: str | os.PathLike[str] | Study | None = None, **fields: Any) -> FederatedStudy:
        """Return a study of this federation, which is not sent yet.

        It has these `columns` of the dictionary, or is read from `source`, a file or an `eigenveil.Study`.

            federation.study(columns=["age", "bmi", "creatinine"], epsilon=1, components=2)

        Units and bounds are the dictionary's, or as in `bounds={"bmi": (10, 60)}`. The default sites are all
        but those that state that they lack a column. Other arguments are the keys of a study file, such as
        `name`, `purpose`, `institution`, `scaling`, `quorum`: `eigenveil study example` explains each.

        Raises RequestError: code `bad-study`, the federation lacks a site or a column, or the study is
        invalid."""
        if fields and source is not None:
            raise study_error(
                f"a study from a source takes no other arguments. Leave out {', '.join(fields)}"
            )
        view, folder = self.view, Path()
        if source is None:
            draft = draft_of(fields, view)
        elif isinstance(source, Study):
            draft = draft_from_toml(study_to_toml(source))
        else:
            draft, folder = draft_from_toml(read_text(Path(source))), Path(source).parent
        return study_from(self, view, draft, folder, self.applicant)

    def readiness(self, study: FederatedStudy) -> DisplayTable[SiteReadiness]:
        """Return which sites of a study are ready for it, by what they state of their columns and settings,
        with the settings that do not fit; last, the sites left out for a column. Raises as
        `FederatedStudy.plan`."""
        plan = study.plan()
        return readiness_table((*plan.sites, *plan.left_out))

    def run(self, wanted: str) -> Run:
        """Return the study of this name, or whose digest starts with `wanted` (6 characters or more). Raises
        RequestError: code `not-found`."""
        return run_of(self, self.call(lambda analyst: analyst.find(wanted)))

    @property
    def title(self) -> str:
        return f"federation {self.identity.identity.federation}"

    def rows(self) -> list[tuple[str, str]]:
        mine, until = self.identity, f"{self.identity.expires:%Y-%m-%d %H:%M} UTC"
        you = [("you are", mine.identity.name), *self.applicant.stated.items()]
        return [*you, ("coordinator", mine.coordinator), ("until", until)]


def readiness_table(found: Sequence[SiteReadiness]) -> DisplayTable[SiteReadiness]:
    return DisplayTable("Sites of this study, by what they state", found, _readiness)


def _readiness(one: SiteReadiness) -> Mapping[str, Any]:
    return {
        "site": one.site, "ready": one.ready_text, "columns": one.columns_text, "settings": one.settings_text,
    }  # fmt: skip


def site_table(view: FederationView) -> DisplayTable[ListedSite]:
    return DisplayTable("Sites", view.sites, _site)


def _site(site: ListedSite) -> Mapping[str, Any]:
    limits = site.statement.thresholds if site.statement else {}
    return {
        "site": site.name,
        "columns offered": "not stated" if site.offers is None else len(site.offers),
        "settings": _settings(site),
        "a person decides": site.statement and site.statement.needs_approval,
        "declines beyond": tuple(
            f"{100 * at:g} % {name.removeprefix('max_')}" for name, at in limits.items()
        ),
        "last contact": site.seen,
    }


def _settings(site: ListedSite) -> str:
    """Return the stated settings of a site that a study has to fit, as text."""
    stated = None if site.statement is None else site.statement.limits
    if stated is None:
        return "not stated"
    persons = f"person_column {stated.person_column!r}" if stated.person_column else "no person_column"
    return f"{persons}, {stated.minimum_records} to {stated.maximum_records} records"


def column_table(dictionary: Dictionary, view: FederationView | None) -> DisplayTable[DictionaryColumn]:
    """Return the columns of a dictionary, with the sites that offer them if one of `view` states any."""
    offers = {} if view is None else offered_columns(view)

    def cells(column: DictionaryColumn) -> Mapping[str, Any]:
        names = {one.name for one in column.columns}
        offered = tuple(site for site, columns in offers.items() if names & set(columns))
        return {
            "column": column.name if not column.levels else ", ".join(sorted(names)),
            "unit": column.unit,
            "lower": column.lower,
            "upper": column.upper,
            "LOINC": column.loinc,
            "meaning": column.meaning,
        } | ({"offered by": offered} if offers else {})

    title = f"Columns of {dictionary.name}, version {dictionary.version}"
    return DisplayTable(title, dictionary.columns, cells)


def _study(run: Run, row: pb.StudyRow) -> Mapping[str, Any]:
    status = status_of(row)
    return {
        "run": run.short,
        "name": row.name,
        "analyst": row.analyst,
        "state": status.state,
        "rounds": status.rounds,
        "submitted": status.submitted,
    }
