"""Mapping of a site as it stands in site.toml: for each column of a study the column of the records behind
it, its unit and factor, and the share of cells that can be read."""

from __future__ import annotations

from dataclasses import dataclass

from eigenveil_client.records.column_quality import ColumnProfile
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import Headers
from eigenveil_client.site.config import SiteConfig, dictionary_in_force
from eigenveil_client.site.mapping.first_look import NOBODY, FirstLook, look_first
from eigenveil_client.site.mapping.targets import Target, targets

CLOSE = 1e-6  # relative difference of two factors of one unit


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedColumn:
    """Column of the records, the column of a study that it becomes, its unit ("" if it is not known), factor
    and offset, and the share of filled cells of persons that can be read (None: of no person). `problem`: why
    it cannot be read."""

    header: str
    column: str
    unit: str
    factor: float
    offset: float
    readable: float | None
    problem: str = ""
    known: bool = True


def mapping_in_force(config: SiteConfig) -> list[MappedColumn]:
    """Return the mapping in force, with what the records hold now. Raises RequestError: the records or the
    dictionary cannot be read."""
    known = {
        name: target
        for target in targets(dictionary_in_force(config))
        for name in (one.name for one in target.column.columns)
    }
    rules = {name: rule for rule in config.column for name in rule.columns}
    limits, person = config.engine.reading, config.person_header or None
    profiles = reader.profile(config.records, config.column, dict.fromkeys(rules), person, limits)
    return [_row(rules[one.name], known.get(one.name), one) for one in profiles]


def _row(rule: ColumnRule, target: Target | None, found: ColumnProfile) -> MappedColumn:
    factor, offset = rule.linear
    share, quality = None, found.quality
    if quality is not None:
        valued = quality.persons - quality.missing
        filled = valued + quality.unreadable
        share = valued / filled if filled else None
    return MappedColumn(
        header=rule.header, column=found.name, unit=_unit(rule, target), factor=factor, offset=offset,
        readable=share, problem=found.problem or "", known=target is not None,
    )  # fmt: skip


def _unit(rule: ColumnRule, target: Target | None) -> str:
    """Return the unit of the records that a rule converts from, as far as it is known."""
    if rule.units:
        return rule.units[0]
    if target is None or target.column.levels:
        return ""
    for unit, linear in target.units().items():
        if all(map(_close, rule.linear, linear)):
            return unit
    return ""


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(1.0, abs(other))


def unmapped_headers(config: SiteConfig) -> tuple[str, ...]:
    """Return the columns of the records behind no rule, but the person's. Raises RequestError: the records
    cannot be read."""
    headers = reader.columns(config.records, config.engine.reading)
    named = {one for rule in config.column for one in (rule.header, rule.years_since, rule.by) if one}
    if config.person_header:
        named.add(Headers(headers).find(config.person_header))
    return tuple(
        one for one in headers if one.strip() and one.strip() not in {name.strip() for name in named}
    )


def look_again(config: SiteConfig) -> FirstLook:
    """Return what is found in the records now, of the source and with the person column that site.toml
    states. Raises as `look_first`."""
    look = look_first(config.records, dictionary_in_force(config), limits=config.engine.reading)
    return look.with_person(config.person_header or NOBODY)
