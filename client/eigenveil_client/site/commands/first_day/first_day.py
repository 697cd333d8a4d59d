"""First day of a site: look at its records, write site.toml, enrol, and map its columns to the dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from eigenveil import __version__
from eigenveil.dictionary.dictionary import Dictionary, listed
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.reporting.presentation import one_line
from eigenveil_client.connection.identity import folder_identity, load_identity
from eigenveil_client.connection.session_start import fetch_dictionary, stored_dictionary
from eigenveil_client.records.discovery.persons import possible_persons
from eigenveil_client.records.tables.source import SQLITE, WORKBOOKS, RecordsConfig, kind_of
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import setup
from eigenveil_client.site.commands.first_day import questions
from eigenveil_client.site.commands.first_day.begun import (
    begun_site,
    check_join,
    check_options,
    naming_progress,
)
from eigenveil_client.site.commands.first_day.counted import is_counted, noised_promises, states_sizes
from eigenveil_client.site.commands.first_day.report import Report, unknown_columns
from eigenveil_client.site.commands.terminal import print_warnings, warn_if_outdated
from eigenveil_client.site.config import SiteConfig, site_dictionary
from eigenveil_client.site.daemon.service import check_role
from eigenveil_client.site.mapping.changes import (
    offered_by,
    set_mappings,
    state_mapping,
    state_missing,
    state_sizes,
)
from eigenveil_client.site.mapping.first_look import (
    ADDRESSES,
    NOBODY,
    FirstLook,
    SeveralTables,
    look_first,
    records_config,
)
from eigenveil_client.site.mapping.matching import ProposedMapping, propose
from eigenveil_client.site.mapping.promises import SizePromises
from eigenveil_client.site.mapping.site_file import FirstFile
from eigenveil_client.site.mapping.table import mappings_of_rules, still_open
from eigenveil_client.site.policy import Policy
from eigenveil_common.command import console, errors, is_interactive, print_result
from eigenveil_common.files import path_exists, read_text

PERSON = "patient"  # the usual name of the person column in studies


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDay:
    """Inputs of a first day: the folder, the site's name, its records and the SOURCE that names them, its
    policy and its join file, if there is one. `person`: the column that names the person, `none` if every row
    is another person, or empty if that is not stated. `begun`: the configuration of an `init` that ended
    early, which goes on. `accept`: the promises are confirmed, and nothing is asked; `asks`: a person can
    answer."""

    folder: Path
    name: str
    source: str
    records: RecordsConfig
    policy: Policy
    join: Path | None = None
    person: str = ""
    begun: SiteConfig | None = None
    accept: bool = False
    asks: bool = False

    def run(self) -> tuple[dict[str, Any], str]:
        """Do all of it, and return the result as values and as text. Raises EigenveilError or Abort: an early
        one leaves nothing behind; a late one names what is done, and the command that goes on."""
        path = self.folder / "site.toml"
        if self.begun is None:
            look = self._with_person(self._look(site_dictionary(None)))
            path = site_config.write(self.folder, self._file(look).text())
        with naming_progress(path, self._again(), self.join):
            if self.begun is not None:
                look = self._with_person(self._look(site_dictionary(self.begun.dictionary)))
            return self._go_on(path, look)

    def _again(self) -> list[str | Path]:
        folder = () if self.folder == Path() else ("--dir", self.folder)
        return ["eigenveil-site", "init", self.source, *folder, *(("--accept",) if self.accept else ())]

    def _go_on(self, path: Path, look: FirstLook) -> tuple[dict[str, Any], str]:
        """Enrol, and ask what is open. A file that is as `init` writes it first is written anew for the
        federation's dictionary; of any other one only what a person answers changes."""
        first = self.begun is None or read_text(path) == site_config.headed(self._file(look).text())
        (value, enrolled), others = self._enrolled(path), False
        if enrolled:
            look, others = self._in_federation(path, look)
        file = self._file(look, others=others)
        if first:
            site_config.replace_text(path, site_config.headed(file.text()))
        answers = tuple(self._answers(path, look))
        promises = self._promised(path)
        self._state(path)
        config = site_config.load(path)
        mapped = mappings_of_rules(config, look, answers)
        if enrolled and not others:
            print_warnings(unknown_columns(path, look, mapped))
        report = Report(
            path=path, config=config, look=look, mapped=mapped, left=still_open(config, look),
            promises=promises, unlisted=file.unlisted if first else 0, enrolled=enrolled,
            begun=self.begun is not None, first=first,
        )  # fmt: skip
        return value | report.values(), report.text()

    def _enrolled(self, path: Path) -> tuple[dict[str, Any], str]:
        """Return the site's enrolment, as values and as text; empty without a join file. A site that goes on
        needs none if it is enrolled."""
        config = site_config.load(path)
        if self.begun is not None and folder_identity(config.identity) is not None:
            return setup.enrolment(path, check_role(load_identity(config.identity), config.name))
        return ({}, "") if self.join is None else setup.enrolled(path, self.join)

    def _look(self, dictionary: Dictionary) -> FirstLook:
        records, begun = self.records, None if self.begun is None else self.begun.records
        if begun is not None and not begun.one_row_per:  # else a SELECT that init makes anew
            parts = {name: getattr(begun, name) for name in ("table", "sheet", "sql", "sql_file")}
            records = replace(records, **parts)
        try:
            with errors.status(Text(f"reading {records}")):
                return look_first(records, dictionary)
        except SeveralTables as several:
            if not self.asks:
                raise
            chosen = questions.ask_table(several.names)
            return look_first(records, dictionary, chosen=chosen)

    def _with_person(self, look: FirstLook) -> FirstLook:
        """Return the findings with the person column as stated, or as answered at a terminal. Raises
        RequestError: code `bad-argument`, it is open, or the column is not there."""
        stated = self.person
        if self.begun is not None and not stated:
            own = self.begun.person_header or NOBODY
            stated = own if look.person is None or look.person.header.strip() != own else ""
        if not stated and look.is_person_open:
            candidates = possible_persons(one.header for one in look.table.columns)
            if not self.asks:
                seen = (
                    f"may be {one_line(listed(candidates))}, which you must confirm"
                    if candidates
                    else "was not found"
                )
                todo = f"State --person HEADER, or --person {NOBODY} if every row is another person"
                raise RequestError(Code.BAD_ARGUMENT, f"the column that names the person {seen}. {todo}")
            stated = questions.ask_person(look.table.columns, candidates)
        if stated == NOBODY and self.policy.person_column:
            raise RequestError(Code.BAD_ARGUMENT, f"--person {NOBODY} contradicts --person-column. State one")
        return look.with_person(stated) if stated else look

    def _in_federation(self, path: Path, look: FirstLook) -> tuple[FirstLook, bool]:
        """Return the proposals for the federation's dictionary, and True if it has published none. Without an
        answer of the coordinator it is the one last received."""
        stored = load_identity(site_config.load(path).identity)
        rule = site_config.load(path).proxy_rule
        try:
            software = f"eigenveil-site init {__version__}"
            found = asyncio.run(fetch_dictionary(replace(stored, proxy=rule), software))
        except EigenveilError as problem:
            found = stored_dictionary(stored)
            if found is None:
                _print_not_fetched(problem)
                return look, False
        if found is None:
            return look, True
        if look.table.config.database and look.table.config.one_row_per:
            return self._look(found), False  # the SELECT has the dictionary's columns
        without = () if look.person is None else (look.person.header,)
        proposals = tuple(propose(look.table.columns, found, without=without))
        return replace(look, dictionary=found, proposals=proposals), False

    def _answers(self, path: Path, look: FirstLook) -> Iterator[ProposedMapping]:
        """Yield the mappings that a person confirms, each once it is written."""
        if self.asks:
            for one in questions.answered(look, still_open(site_config.load(path), look)):
                print_warnings(set_mappings(path, look, [one]))
                yield one
            for words in questions.words_without_value(site_config.load(path), look):
                try:
                    print_warnings(state_missing(path, words))
                except RequestError as problem:  # a rule gives such a word another meaning
                    print_warnings([str(problem)])

    def _file(self, look: FirstLook, *, others: bool = False) -> FirstFile:
        policy = self.policy if self.begun is None else self.begun.policy
        if look.person is not None and not policy.person_column:
            policy = replace(policy, person_column=PERSON)
        stated = site_config.first_keys(self.name, policy)
        del stated["columns"]  # those that were found
        return FirstFile(stated=stated, look=look, accepted=look.certain, others=others)

    def _state(self, path: Path) -> None:
        """Write the mapped columns as `offers`, if a person who saw them agrees."""
        config = site_config.load(path)
        mapped = offered_by(config)
        if not self.asks or config.offers or not mapped or not questions.may_state(mapped):
            return
        state_mapping(path)

    def _promised(self, path: Path) -> SizePromises | None:
        """Return promises that a person confirms, written and charged; None if there are none. Those that the
        file states stay as they are. Raises RequestError: one of them contradicts the number of persons."""
        loaded, default = site_config.load(path), Policy()
        own = {
            name: getattr(loaded.policy, name)
            for name in ("minimum_records", "maximum_records")
            if getattr(loaded.policy, name) != getattr(default, name)
        }
        if (
            len(own) > 1
            or states_sizes(path, loaded)
            or (not self.accept and not (self.asks and questions.may_count(counted=is_counted(loaded))))
        ):
            return None
        promises = noised_promises(loaded, own)
        if not self.accept and not questions.confirm_promises(promises):
            return None
        state_sizes(path, promises)
        return promises


def _print_not_fetched(problem: EigenveilError) -> None:
    todo = "Start the daemon, then run: eigenveil-site map"
    what = f"The federation's dictionary was not fetched ({problem}): the usual one is used"
    console.print(f"{what}. {todo}", markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Options of `init` that name a part of SOURCE."""

    table: str = ""
    sheet: str = ""
    sql: str = ""
    sql_file: Path | None = None

    def require_unused(self) -> None:
        """Raise UsageError if an option is stated, where there is no SOURCE."""
        used = [name for name, value in asdict(self).items() if value]
        if used:
            raise click.UsageError(f"--{used[0].replace('_', '-')} needs SOURCE, the argument of init")

    def records(self, source: str) -> RecordsConfig:
        """Return the settings of SOURCE. Raises RequestError: code `bad-config`; UsageError: an option names
        a part that such a source does not have."""
        database, path = source.startswith(ADDRESSES), Path(source)
        if self.sheet and (database or kind_of(path) not in WORKBOOKS):
            raise click.UsageError(f"--sheet is for workbooks ({', '.join(WORKBOOKS)}). Remove it")
        if self.table and not database and path.suffix.lower() not in SQLITE:
            raise click.UsageError(f"--table is for databases and SQLite ({', '.join(SQLITE)}). Remove it")
        return records_config(source, **asdict(self))


def look_and_write(
    source: str,
    options: TableOptions,
    folder: Path,
    name: str,
    policy: Policy,
    join: Path | None,
    *,
    begun: SiteConfig | None,
    person: str,
    accept: bool,
    as_json: bool,
) -> None:
    """Look at SOURCE, write site.toml or go on with the one `begun`, enrol with a join file, and print the
    result."""
    records = options.records(source)
    if begun is not None:
        check_options(folder / "site.toml", begun, name, person, policy)
    day = FirstDay(
        folder=folder, name=name, source=source, records=records, policy=policy, join=join, accept=accept,
        person=person, begun=begun, asks=is_interactive(as_json) and not accept,
    )  # fmt: skip
    value, text = day.run()
    print_result(value, as_json, f"{text}{setup.to_allow(policy if begun is None else begun.policy)}")
    if begun is not None:
        warn_if_outdated(site_config.load(folder / "site.toml"))


def begun_settings(
    source: str | None, options: TableOptions, folder: Path, name: str | None, join: Path | None
) -> tuple[SiteConfig | None, str | None, Path | None]:
    """Return the configuration of an `init` that ended early, if there is one, and the site's name and join
    file, as site.toml and its identity need them. Raises RequestError: code `conflict`, the folder has a
    site.toml, and `init` cannot go on with it; or the join file is another site's."""
    if source is None:
        site_config.check_unwritten(folder)
        return None, name, join
    begun = begun_site(folder, options.records(source))
    if begun is None:
        return None, name, join
    enrolled = folder_identity(begun.identity) is not None
    if join is not None and (path_exists(join) or not enrolled):  # of an enrolled site it may be gone
        check_join(folder / "site.toml", begun, join)
    return begun, name or begun.name, None if enrolled else join
