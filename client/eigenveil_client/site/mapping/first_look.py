"""First look at a site's records: the table to use, the person column, and proposals for a dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.errors import Code, RequestError
from eigenveil.reporting.presentation import one_line
from eigenveil_client.records.discovery.look import SeenTable
from eigenveil_client.records.discovery.persons import FoundPerson, find_person, stated_person
from eigenveil_client.records.discovery.tables import PossibleTable, has_several
from eigenveil_client.records.isolated import discovery
from eigenveil_client.records.isolated.process import DEFAULT_LIMITS, ReaderLimits
from eigenveil_client.records.tables.source import BadRecords, RecordsConfig
from eigenveil_client.site.mapping.matching import ProposedMapping, propose
from eigenveil_client.site.mapping.omop import PERSON, RAW, find_omop, omop_select
from eigenveil_client.site.mapping.row_choice import RowChoice, row_choice
from eigenveil_client.site.mapping.targets import targets

ADDRESSES = ("postgresql://", "postgres://", "service=", "host=", "dbname=")
LISTING = "SELECT 1 AS a"  # a database needs some SELECT before its tables are known
MOST_LOOKED_AT = 12  # tables
NOBODY = "none"  # the answer that every row is another person
MOST_COLUMNS_FOUND = "which has most of the columns that the dictionary may have"
CLEARLY = 2  # times as many proposals as the next table


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """Findings in a table: its content, the person column, proposals for its other columns, and the
    choice among several rows of a person, if there are several. Without a person column, `rows_are_persons`
    if a person said so; else it is open what a row is. `taken`: which of several tables it is, and why."""

    table: SeenTable
    dictionary: Dictionary
    person: FoundPerson | None
    proposals: tuple[ProposedMapping, ...]
    rows: RowChoice | None
    rows_are_persons: bool = False
    taken: str = ""

    @property
    def is_person_open(self) -> bool:
        """True if a person must say whose a row is: every privacy guarantee is about persons so named."""
        return self.person is None and not self.rows_are_persons

    def with_person(self, stated: str) -> FirstLook:
        """Return these findings with the person column that was stated, or `NOBODY`. Raises BadRecords: it is
        not there."""
        if stated == NOBODY:
            return replace(self, person=None, rows=None, rows_are_persons=True)
        person = stated_person(self.table.columns, stated)
        return replace(
            self, person=person, rows=row_choice(self.table.columns) if person.several else None,
            proposals=tuple(one for one in self.proposals if one.header != person.header),
        )  # fmt: skip

    @property
    def certain(self) -> tuple[ProposedMapping, ...]:
        """The proposals that need no person."""
        return tuple(one for one in self.proposals if one.certain)

    @property
    def open(self) -> tuple[ProposedMapping, ...]:
        """The proposals that are questions."""
        return tuple(one for one in self.proposals if not one.certain)


class SeveralTables(RequestError):
    """Error of a source with several tables, none of which is clearly the one; code `bad-config`."""

    def __init__(self, config: RecordsConfig, names: Sequence[str]) -> None:
        self.names = tuple(names)
        option = "--table" if config.source is None or config.is_sqlite else "--sheet"
        listed = one_line(", ".join(names))
        super().__init__(Code.BAD_CONFIG, f"{config} has several tables: {listed}. Name one with {option}")


def records_config(
    source: str, *, table: str = "", sheet: str = "", sql: str = "", sql_file: Path | None = None
) -> RecordsConfig:
    """Return the settings of a file, folder or database, as far as they are stated; its SELECT lists nothing
    yet if it is a database without one. Raises RequestError: code `bad-config`."""
    if source.startswith(ADDRESSES):
        select = sql or (PossibleTable.of(table).select if table else "")
        stated = select if sql_file is None else ""
        return RecordsConfig(database=source, sql=stated or ("" if sql_file else LISTING), sql_file=sql_file)
    path = Path(source).resolve()
    return RecordsConfig(source=path, table=table, sheet=sheet, sql=sql, sql_file=sql_file)


def look_first(
    config: RecordsConfig, dictionary: Dictionary, *, chosen: str = "", limits: ReaderLimits = DEFAULT_LIMITS
) -> FirstLook:
    """Return what is found in the records. Of several tables the one named `chosen` is taken, or the one with
    clearly most proposals.

    Raises:
        BadRecords: the records cannot be read.
        SeveralTables: no table is clearly the one."""
    if config.source is None and config.sql == LISTING:
        tables = discovery.tables(config, limits)
        found = find_omop(tables)
        if found is not None and not chosen:
            return _look_at_omop(config, found, dictionary, limits)
        return _best(config, tables, dictionary, chosen, limits)
    if has_several(config):
        return _best(config, discovery.tables(config, limits), dictionary, chosen, limits)
    return _look(config, dictionary, limits)


def _look(
    config: RecordsConfig,
    dictionary: Dictionary,
    limits: ReaderLimits,
    units: Mapping[str, str] = MappingProxyType({}),
    selected: Mapping[str, str] | None = None,
) -> FirstLook:
    """Return what is found in one table; `units` are those that are known of its columns, `selected` as of
    `propose`."""
    seen = discovery.look_at(config, limits)
    columns = tuple(replace(one, unit=units.get(one.header, one.unit)) for one in seen.columns)
    seen = replace(seen, columns=columns)
    person = find_person(seen.columns)
    rows = row_choice(seen.columns) if person is not None and person.several else None
    without = () if person is None else (person.header,)
    proposals = propose(seen.columns, dictionary, without=without, selected=selected)
    return FirstLook(table=seen, dictionary=dictionary, person=person, proposals=tuple(proposals), rows=rows)


def _best(
    config: RecordsConfig,
    tables: Sequence[PossibleTable],
    dictionary: Dictionary,
    chosen: str,
    limits: ReaderLimits,
) -> FirstLook:
    wanted = [one for one in tables if chosen in ("", one.label, one.name)]
    looks: list[tuple[PossibleTable, FirstLook]] = []
    for one in wanted[:MOST_LOOKED_AT]:
        try:
            looks.append((one, _look(_of_table(config, one), dictionary, limits)))
        except BadRecords:
            if len(wanted) == 1:
                raise
    if not looks:
        raise BadRecords(f"{config} has no table with named columns. Export one")
    ranked = sorted(looks, key=lambda look: -len(look[1].proposals))
    best, second = len(ranked[0][1].proposals), len(ranked[1][1].proposals) if len(ranked) > 1 else 0
    if len(ranked) > 1 and (not best or best < CLEARLY * second):
        raise SeveralTables(config, [one.label for one in wanted])
    table, look = ranked[0]
    if len(tables) == 1:
        return look
    kind = "table" if config.source is None or config.is_sqlite else "sheet"
    why = "as stated" if chosen else MOST_COLUMNS_FOUND
    return replace(look, taken=f"{kind} {table.label!r} of {len(tables)}, {why}")


def _of_table(config: RecordsConfig, table: PossibleTable) -> RecordsConfig:
    if config.source is None:
        return replace(config, sql=table.select)
    return replace(config, table=table.name) if config.is_sqlite else replace(config, sheet=table.name)


def _look_at_omop(
    config: RecordsConfig, tables: dict[str, PossibleTable], dictionary: Dictionary, limits: ReaderLimits
) -> FirstLook:
    """Look at all columns that OMOP's tables may have, then again at those that have values, in a stated unit
    where there is one."""
    known = targets(dictionary)
    every = discovery.look_at(replace(config, sql=omop_select(tables, known)), limits)
    filled = {one.header for one in every.columns if one.filled}
    used = [name for name in filled if not name.endswith(RAW) or name.removesuffix(RAW) not in filled]
    sql = omop_select(tables, known, used)
    units = {one.name: one.unit for one in dictionary.columns if one.unit}
    selected = {name: name.removesuffix(RAW) for name in used}
    look = _look(replace(config, sql=sql, one_row_per=PERSON), dictionary, limits, units, selected)
    evidence = ("tables of OMOP; measurements by their LOINC codes, converted from the units of their rows",)
    return replace(look.with_person(PERSON), table=replace(look.table, evidence=evidence))
