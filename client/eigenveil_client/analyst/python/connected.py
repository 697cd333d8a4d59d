"""A federation as its analyst sees it from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, Unpack

from eigenveil.dictionary.dictionary import DictionaryColumn
from eigenveil.reporting.notebook import card, lines
from eigenveil.study.checks import refuse
from eigenveil.study.study import Study
from eigenveil_client.analyst.federation import FederationView, ListedSite
from eigenveil_client.analyst.python.budget import FederationBudget, budget_from
from eigenveil_client.analyst.python.choices import Choices
from eigenveil_client.analyst.python.choosing import dictionary_of
from eigenveil_client.analyst.python.run import Run, run_of, status_of
from eigenveil_client.analyst.python.study import FederatedStudy, stated, study_from, study_of
from eigenveil_client.analyst.python.tables import Table
from eigenveil_client.analyst.talk import Talk
from eigenveil_common.files import read_text
from eigenveil_proto.v1 import eigenveil_pb2 as pb


class ConnectedFederation:
    """Your federation, as `eigenveil.connect()` gives it. Everything is asked when it is wanted and may be
    used from any thread; `with`, `close()` or the end of Python ends it.

    Every method and property raises:
        EigenveilError: the coordinator's own error, or code `unreachable`.
    """

    def __init__(self, profile: Path | None = None) -> None:
        self.talk = Talk(profile)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End every call and the thread behind them; studies go on."""
        self.talk.close()

    @property
    def view(self) -> FederationView:
        """Its sites and its dictionary at one moment."""
        return self.talk.ask(lambda analyst: analyst.federation())

    @property
    def sites(self) -> Table[ListedSite]:
        """The sites, and what each states of itself, by its own word."""
        return Table("Sites", self.view.sites, _site)

    @property
    def columns(self) -> Table[DictionaryColumn]:
        """The columns of the federation's dictionary, and which sites say that they offer them."""
        view = self.view
        return Table("Columns", dictionary_of(view).columns, lambda one: _column(one, view))

    @property
    def budget(self) -> FederationBudget:
        """What is left of the federation's budget."""
        return budget_from(self.talk.ask(lambda analyst: analyst.listed()))

    @property
    def studies(self) -> Table[Run]:
        """Every study of the federation, oldest first."""
        rows = self.talk.ask(lambda analyst: analyst.studies())
        stands = {row.plan_digest.hex(): row for row in rows}
        runs = [run_of(self.talk, row) for row in rows]
        return Table("Studies", runs, lambda one: _study(one, stands[one.digest]))

    def study(
        self, source: str | os.PathLike[str] | Study | None = None, **choices: Unpack[Choices]
    ) -> FederatedStudy:
        """A study of this federation: of these `columns` of its dictionary, or as the file (or the
        `eigenveil.Study`) `source` says. Nothing is sent of it yet.

            federation.study(columns=["age", "bmi", "creatinine"], epsilon=1, components=2)

        Units and bounds are the dictionary's; `bounds={"bmi": (10, 60)}` are the study's own. Sites are all
        that do not say that they lack a column. Other arguments are the keys of a study file, such as
        `name`, `purpose`, `algorithm`, `scaling`, `quorum`: `eigenveil study example` explains each.

        Raises:
            RequestError: code `bad-study`, the federation does not have what it names, or it cannot be.
        """
        if source is None:
            return study_of(self.talk, self.view, choices)
        if choices:
            raise refuse(f"the study's source says it all; leave out {', '.join(choices)}")
        if isinstance(source, Study):
            return stated(self.talk, self.view, source)
        text, folder = read_text(Path(source)), Path(source).parent
        return study_from(self.talk, self.view, text, folder)

    def run(self, wanted: str) -> Run:
        """The study of this name, or whose digest begins so (6 characters or more).

        Raises:
            RequestError: code `not-found`.
        """
        return run_of(self.talk, self.talk.ask(lambda analyst: analyst.find(wanted)))

    def _rows(self) -> list[tuple[str, str]]:
        mine = self.talk.identity
        until = f"{mine.expires:%Y-%m-%d %H:%M} UTC"
        return [("you are", mine.identity.name), ("coordinator", mine.coordinator), ("until", until)]

    def __repr__(self) -> str:
        return lines(f"federation {self.talk.identity.identity.federation}", self._rows())

    def _repr_html_(self) -> str:
        return card(f"Federation {self.talk.identity.identity.federation}", self._rows())


def _site(site: ListedSite) -> Mapping[str, Any]:
    stated = site.statement
    return {
        "site": site.name,
        "columns offered": "not stated" if site.offers is None else len(site.offers),
        "a person decides": None if stated is None else stated.asks,
        "heard": site.seen,
    }


def _column(column: DictionaryColumn, view: FederationView) -> Mapping[str, Any]:
    names = {one.name for one in column.columns}
    offered = tuple(one.name for one in view.sites if names & set(one.offers or ()))
    states = any(one.offers is not None for one in view.sites)
    return {
        "column": column.name if not column.levels else ", ".join(sorted(names)),
        "unit": column.unit,
        "lower": column.lower,
        "upper": column.upper,
        "meaning": column.meaning,
    } | ({"offered by": offered} if states else {})


def _study(run: Run, row: pb.StudyRow) -> Mapping[str, Any]:
    stands = status_of(row)
    return {
        "run": run.short,
        "name": row.name,
        "analyst": row.analyst,
        "state": stands.state,
        "rounds": stands.rounds,
        "submitted": stands.submitted,
    }
