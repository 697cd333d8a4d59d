"""First day of a site: look at its records, write site.toml, enrol, and map its columns to the dictionary."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from eigenveil import __version__
from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.formats import dictionary_to_toml
from eigenveil.dictionary.site_rules import analysts_line
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.study.checks import to_plain
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.connection.session_start import fetch_dictionary
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import setup
from eigenveil_client.site.commands.first_day import questions
from eigenveil_client.site.config import SiteConfig, site_dictionary
from eigenveil_client.site.mapping.first_look import FirstLook, SeveralTables, look_first, records_config
from eigenveil_client.site.mapping.matching import ProposedMapping, propose
from eigenveil_client.site.mapping.promises import SizePromises, count_cost, size_promises
from eigenveil_client.site.mapping.site_file import FirstFile, listed
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.state.store_access import open_site_store
from eigenveil_common import config
from eigenveil_common.command import console, is_interactive, print_result, shell_command
from eigenveil_common.files import make_folder, write_durably

PERSON = "patient"  # the usual name of the person column in studies
DICTIONARY = "dictionary.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDay:
    """Inputs of a first day: the folder, the site's name, its records, its policy and its join file, if there
    is one. `accept`: the promises are confirmed, and nothing is asked; `asks`: a person can answer."""

    folder: Path
    name: str
    records: RecordsConfig
    policy: Policy
    join: Path | None = None
    accept: bool = False
    asks: bool = False

    def run(self) -> tuple[dict[str, Any], str]:
        """Do all of it, and return the result as values and as text. Raises EigenveilError: an early one
        leaves nothing behind; a late one names what is left to do."""
        site_config.check_unwritten(self.folder)
        look = self._look(site_dictionary(None))
        file = self._file(look, look.certain, federation=False)
        path = site_config.write(self.folder, file.text())
        value: dict[str, Any] = {}
        enrolled = ""
        if self.join is not None:
            value, enrolled = setup.joined(path, self.join)
            look, federation = self._in_federation(path, look)
        else:
            federation = False
        accepted = self._accepted(look)
        file = self._file(look, accepted, federation=federation)
        _rewrite(path, file.text())
        file = self._promised(path, file)
        left = [one for one in look.open if one.header not in {other.header for other in accepted}]
        view = value | {
            "config": str(path), "name": self.name, "columns": list(file.columns),
            "mapped": [_mapped(one) for one in accepted], "open": [_mapped(one) for one in left],
            "promises": None if file.promises is None else config.values(file.promises),
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

    def _in_federation(self, path: Path, look: FirstLook) -> tuple[FirstLook, bool]:
        """Return the proposals for the federation's dictionary, and True if it has one."""
        stored = load_identity(site_config.load(path).identity)
        rule = site_config.load(path).proxy_rule
        try:
            software = f"eigenveil-site init {__version__}"
            found = asyncio.run(fetch_dictionary(replace(stored, proxy=rule), software))
        except EigenveilError as problem:
            console.print(f"The federation's dictionary was not fetched ({problem}); the usual one is used.",
                          markup=False, soft_wrap=True)  # fmt: skip
            return look, False
        if found is None:
            return look, False
        write_durably(path.with_name(DICTIONARY), dictionary_to_toml(found).encode())
        if look.table.config.database and look.table.config.one_row_per:
            return self._look(found), True  # the SELECT has the dictionary's columns
        without = () if look.person is None else (look.person.header,)
        proposals = tuple(propose(look.table.columns, found, without=without))
        return replace(look, dictionary=found, proposals=proposals), True

    def _accepted(self, look: FirstLook) -> tuple[ProposedMapping, ...]:
        if not self.asks or self.accept:
            return look.certain
        return (*look.certain, *questions.answered(look))

    def _file(self, look: FirstLook, accepted: tuple[ProposedMapping, ...], *, federation: bool) -> FirstFile:
        policy = replace(self.policy, disclose_settings=True)
        if look.person is not None and not policy.person_column:
            policy = replace(policy, person_column=PERSON)
        stated: dict[str, Any] = {"name": self.name, "identity": "identity", "state": "state.db"}
        stated |= {"dictionary": DICTIONARY} if federation else {}
        keys = config.values(policy)
        file = FirstFile(stated={}, look=look, accepted=accepted, others=not federation)
        if policy.columns == Policy().columns:
            keys["columns"] = file.columns
        stated |= {key: "" if value is None else to_plain(value) for key, value in keys.items()}
        stated |= {"offers": ["*"]}
        return replace(file, stated=stated)

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
    """Return promises for a site's records, from its number of persons, which is noised and charged once.
    Raises RequestError: the records cannot be read, or the budget is too small."""
    make_folder(loaded.identity, mode=0o700)  # where the ledger's position is noted, also before enrolment
    with open_site_store(loaded) as store:
        noised, sigma = store.person_counts.noised(lambda: _persons(loaded), count_cost(loaded.policy))
        store.note_ledger()
    names = [name for rule in loaded.column for name in rule.columns]
    return size_promises(noised, sigma, len(names))


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
    former = path.read_bytes()
    write_durably(path, site_config.headed(text).encode(), mode=0o640)
    try:
        site_config.load(path)
    except RequestError:
        write_durably(path, former, mode=0o640)
        raise


def _mapped(one: ProposedMapping) -> dict[str, Any]:
    return {
        "header": one.header, "column": one.column, "unit": one.unit, "factor": one.linear[0],
        "offset": one.linear[1], "readable": one.readable, "reason": one.reason, "question": one.question,
    }  # fmt: skip


def _report(path: Path, file: FirstFile, left: list[ProposedMapping], enrolled: str) -> str:
    lines = [f"wrote {path}"]
    mapped = [f"{one.header} -> {one.column}" for one in file.accepted]
    lines.append(f"mapped columns ({len(mapped)}): {listed(mapped)}" if mapped else "no column was mapped")
    if left:
        named = listed([one.header for one in left])
        lines.append(f"open questions ({len(left)}), as comments in the file: {named}")
    if file.promises is not None:
        stated = ", ".join(f"{key} = {value}" for key, value in config.values(file.promises).items())
        lines.append(f"promises from the number of persons, noised once: {stated}")
    lines.append(enrolled or _to_enrol(path))
    return "\n".join(lines)


def _to_enrol(path: Path) -> str:
    return f"next: {shell_command('eigenveil-site', 'enrol', '--config', path, '--join', 'FILE')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Options of `init` that name a part of SOURCE."""

    table: str = ""
    sheet: str = ""
    sql: str = ""
    sql_file: Path | None = None

    def require_unused(self) -> None:
        """Raise UsageError if an option is stated, where there is no SOURCE."""
        used = [name for name in ("table", "sheet", "sql", "sql_file") if getattr(self, name)]
        if used:
            raise click.UsageError(f"--{used[0].replace('_', '-')} needs SOURCE, the argument of init")

    def records(self, source: str) -> RecordsConfig:
        """Return the settings of SOURCE. Raises RequestError: code `bad-config`."""
        named = {name: getattr(self, name) for name in ("table", "sheet", "sql", "sql_file")}
        return records_config(source, **named)


def look_and_write(
    source: str,
    options: TableOptions,
    folder: Path,
    name: str,
    policy: Policy,
    join: Path | None,
    *,
    accept: bool,
    as_json: bool,
) -> None:
    """Look at SOURCE, write site.toml, enrol with a join file, and print the result."""
    day = FirstDay(
        folder=folder, name=name, records=options.records(source), policy=policy, join=join, accept=accept,
        asks=is_interactive(as_json) and not accept,
    )  # fmt: skip
    value, text = day.run()
    todo = "" if policy.analysts else f"\nname the allowed analysts in it: {analysts_line('NAME')}"
    print_result(value, as_json, f"{text}{todo}")
