"""First day of a site: look at its records, write site.toml, enrol, and map its columns to the dictionary."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from eigenveil import __version__
from eigenveil.dictionary.dictionary import Dictionary, listed
from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.reporting.presentation import one_line
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.session_start import fetch_dictionary
from eigenveil_client.records.discovery.persons import possible_persons
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import setup
from eigenveil_client.site.commands.first_day import questions
from eigenveil_client.site.config import SiteConfig, site_dictionary
from eigenveil_client.site.mapping.first_look import (
    NOBODY,
    FirstLook,
    SeveralTables,
    look_first,
    records_config,
)
from eigenveil_client.site.mapping.matching import ProposedMapping, propose
from eigenveil_client.site.mapping.promises import SizePromises, count_cost, size_promises
from eigenveil_client.site.mapping.site_file import FirstFile
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.state.store_access import open_site_store
from eigenveil_common import config
from eigenveil_common.command import console, is_interactive, print_result, shell_command
from eigenveil_common.files import make_folder

PERSON = "patient"  # the usual name of the person column in studies
ROWS_ARE_PERSONS = "every row counts as one person"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDay:
    """Inputs of a first day: the folder, the site's name, its records, its policy and its join file, if there
    is one. `person`: the column that names the person, `none` if every row is another person, or empty if
    that is not stated. `accept`: the promises are confirmed, and nothing is asked; `asks`: a person can
    answer."""

    folder: Path
    name: str
    records: RecordsConfig
    policy: Policy
    join: Path | None = None
    person: str = ""
    accept: bool = False
    asks: bool = False

    def run(self) -> tuple[dict[str, Any], str]:
        """Do all of it, and return the result as values and as text. Raises EigenveilError: an early one
        leaves nothing behind; a late one names what is left to do."""
        site_config.check_unwritten(self.folder)
        look = self._with_person(self._look(site_dictionary(None)))
        path = site_config.write(self.folder, self._file(look, look.certain).text())
        value: dict[str, Any] = {}
        enrolled, others = "", False
        if self.join is not None:
            value, enrolled = setup.joined(path, self.join)
            look, others = self._in_federation(path, look)
        accepted = self._accepted(look)
        file = self._file(look, accepted, others=others)
        _rewrite(path, file.text())
        file = self._stating(path, self._promised(path, file))
        left = [one for one in look.open if one.header not in {other.header for other in accepted}]
        view = value | {
            "config": str(path), "name": self.name, "columns": list(file.columns),
            "mapped": [one.to_dict() for one in accepted], "open": [one.to_dict() for one in left],
            "promises": None if file.promises is None else config.values(file.promises),
            "offers": list(file.offers),
            "person": None if file.look.person is None else file.look.person.header,
        }  # fmt: skip
        return view, _report(path, file, left, enrolled)

    def _look(self, dictionary: Dictionary) -> FirstLook:
        try:
            return look_first(self.records, dictionary)
        except SeveralTables as several:
            if not self.asks:
                raise
            chosen = questions.ask_table(several.names)
            return look_first(self.records, dictionary, chosen=chosen)

    def _with_person(self, look: FirstLook) -> FirstLook:
        """Return the findings with the person column as stated, or as answered at a terminal. Raises
        RequestError: code `bad-argument`, it is open, or the column is not there."""
        stated = self.person
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
        """Return the proposals for the federation's dictionary, and True if it has published none."""
        stored = load_identity(site_config.load(path).identity)
        rule = site_config.load(path).proxy_rule
        try:
            software = f"eigenveil-site init {__version__}"
            found = asyncio.run(fetch_dictionary(replace(stored, proxy=rule), software))
        except EigenveilError as problem:
            todo = "Start the daemon, then run: eigenveil-site map"
            what = f"The federation's dictionary was not fetched ({problem}): the usual one is used"
            console.print(f"{what}. {todo}", markup=False, soft_wrap=True)
            return look, False
        if found is None:
            return look, True
        if look.table.config.database and look.table.config.one_row_per:
            return self._look(found), False  # the SELECT has the dictionary's columns
        without = () if look.person is None else (look.person.header,)
        proposals = tuple(propose(look.table.columns, found, without=without))
        return replace(look, dictionary=found, proposals=proposals), False

    def _accepted(self, look: FirstLook) -> tuple[ProposedMapping, ...]:
        if not self.asks or self.accept:
            return look.certain
        return (*look.certain, *questions.answered(look))

    def _file(
        self, look: FirstLook, accepted: tuple[ProposedMapping, ...], *, others: bool = False
    ) -> FirstFile:
        policy = self.policy
        if look.person is not None and not policy.person_column:
            policy = replace(policy, person_column=PERSON)
        stated = site_config.first_keys(self.name, policy)
        if policy.columns == Policy().columns:
            del stated["columns"]  # those that were found
        return FirstFile(stated=stated, look=look, accepted=accepted, others=others)

    def _stating(self, path: Path, file: FirstFile) -> FirstFile:
        """Return the file with the mapped columns as `offers`, written, if a person who saw them agrees."""
        if not self.asks or not file.mapped or not questions.may_state(file.mapped):
            return file
        stating = replace(file, offers=file.mapped)
        _rewrite(path, stating.text())
        return stating

    def _promised(self, path: Path, file: FirstFile) -> FirstFile:
        """Return the file with promises, if a person confirms them; written and charged. Those that the
        command states stay as they are."""
        default = Policy()
        own = {
            name: getattr(self.policy, name)
            for name in ("minimum_records", "maximum_records")
            if getattr(self.policy, name) != getattr(default, name)
        }
        if len(own) > 1 or (not self.accept and not (self.asks and questions.may_count())):
            return file
        promises = replace(noised_promises(site_config.load(path)), **own)
        if not self.accept and not questions.confirm_promises(promises):
            return file
        promised = replace(file, promises=promises)
        _rewrite(path, promised.text())
        return promised


def noised_promises(loaded: SiteConfig) -> SizePromises:
    """Return promises for a site's records and the columns of its dictionary, from its number of persons,
    which is noised and charged once. Raises RequestError: the records cannot be read, or the budget is too
    small."""
    make_folder(loaded.identity, mode=0o700)  # where the ledger's position is noted, also before enrolment
    with open_site_store(loaded) as store:
        cost, yearly = count_cost(loaded.policy), loaded.policy.yearly
        noised, sigma = store.noised_persons(lambda: _persons(loaded), cost, yearly)
    columns = len(site_config.dictionary_in_force(loaded).usable())
    return size_promises(noised, sigma, columns, loaded.policy)


def _persons(loaded: SiteConfig) -> int:
    """Return the number of persons in the records."""
    limits, ruled = loaded.engine.reading, [name for rule in loaded.column for name in rule.columns]
    one = (ruled or reader.columns(loaded.records, limits))[0]
    found = reader.profile(loaded.records, loaded.column, {one: None}, loaded.person_header or None, limits)
    quality = found[0].quality
    if quality is None:
        raise RequestError(Code.BAD_DATA, f"the persons cannot be counted: {found[0].problem}")
    return quality.persons


def _rewrite(path: Path, text: str) -> None:
    """Write the text of site.toml anew; the former one stays if the new one is invalid."""
    site_config.replace_text(path, site_config.headed(text))


def _report(path: Path, file: FirstFile, left: list[ProposedMapping], enrolled: str) -> str:
    person, lost = file.look.person, file.look.table.lost
    named = f"{one_line(person.header)} names the person of a row" if person is not None else ROWS_ARE_PERSONS
    lines = [f"wrote {path}", named]
    if lost:
        lines.append(f"{lost} lines lack cells, have too many, or broken letters: run eigenveil-site check")
    mapped = [one_line(f"{one.header} -> {one.column}") for one in file.accepted]
    lines.append(f"mapped columns ({len(mapped)}): {listed(mapped)}" if mapped else "no column was mapped")
    if left:
        named = listed([one_line(one.header) for one in left])
        lines.append(f"open questions ({len(left)}), as comments in the file: {named}")
    if file.promises is not None:
        stated = ", ".join(f"{key} = {value}" for key, value in config.values(file.promises).items())
        lines.append(f"promises from the number of persons, noised once: {stated}")
    if ANY in (one.header.strip() for one in file.look.table.columns):
        lines.append("a column of the records is named '*', which means every column: rename it there")
    if file.unlisted:
        lines.append(f"{file.unlisted} other columns of numbers are too many to list: name them in columns")
    if not file.columns:
        lines.append("columns = [] declines every study: map columns, or name those that studies may use")
    if not file.offers:
        command = shell_command("eigenveil-site", "map", "--offer", "--config", path)
        lines.append(f"no column is stated to the federation; to state the mapped ones: {command}")
    lines.append(enrolled or setup.to_enrol(path))
    return "\n".join(lines)


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
        """Return the settings of SOURCE. Raises RequestError: code `bad-config`."""
        return records_config(source, **asdict(self))


def look_and_write(
    source: str,
    options: TableOptions,
    folder: Path,
    name: str,
    policy: Policy,
    join: Path | None,
    *,
    person: str,
    accept: bool,
    as_json: bool,
) -> None:
    """Look at SOURCE, write site.toml, enrol with a join file, and print the result."""
    day = FirstDay(
        folder=folder, name=name, records=options.records(source), policy=policy, join=join, accept=accept,
        person=person, asks=is_interactive(as_json) and not accept,
    )  # fmt: skip
    value, text = day.run()
    print_result(value, as_json, f"{text}{setup.to_allow(policy)}")
